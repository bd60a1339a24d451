"""Every format of traces, by its first public rows; what is wrong in a file is told with its line."""

import gzip
from pathlib import Path

import pytest

from tests.traffic.traffic_builders import SAMPLES
from twostroke.errors import ConfigError
from twostroke.traffic.trace import read_trace


def test_arrivals_and_lengths() -> None:
    items = read_trace(SAMPLES / "azure2023_conv_8.csv").items
    assert [(item.due_s, item.prompt_tokens, item.output_tokens) for item in items[:2]] == [
        (0.0, 374, 44),
        (4.314579, 396, 109),
    ]
    assert len(items) == 8


def test_lengths_alone_have_no_times() -> None:
    workload = read_trace(SAMPLES / "lengths_lmsys_8.csv")
    assert not workload.has_times
    assert [(item.prompt_tokens, item.output_tokens) for item in workload.items[:2]] == [(156, 67), (115, 390)]


def test_hash_ids_are_pieces_that_prompts_share() -> None:
    items = read_trace(SAMPLES / "mooncake_conversation_6.jsonl").items
    assert [(item.due_s, item.prompt_tokens, item.output_tokens) for item in items[:2]] == [
        (0.0, 6758, 500),
        (0.0, 7322, 490),
    ]
    assert items[0].pieces[0] == items[1].pieces[0]
    assert items[0].pieces[1] != items[1].pieces[1]
    assert [piece.num_tokens for piece in items[0].pieces] == [512] * 13 + [102]


def test_ids_of_short_blocks_leave_a_rest_of_its_own() -> None:
    items = read_trace(SAMPLES / "sharegpt_hash16_4.jsonl").items
    assert [piece.num_tokens for piece in items[0].pieces] == [16] * 147 + [6]
    assert (items[0].due_s, items[0].prompt_tokens, items[1].prompt_tokens) == (0.046927, 2358, 1034)
    assert items[0].pieces[-1].name != items[1].pieces[-1].name


def test_a_round_repeats_what_was_said_and_waits_for_the_one_before() -> None:
    items = read_trace(SAMPLES / "agentic_sessions_4.csv").items
    first, second, third, other = items[:4]
    assert [item.prompt_tokens for item in (first, second, third)] == [2318, 2518 + 348, 2997 + 812]
    assert second.pieces[:1] == first.pieces
    assert third.pieces[:3] == second.pieces
    assert [(item.due_s, item.follows, item.pause_s) for item in (first, second, third, other)] == [
        (0.117, None, 0.0),
        (None, 0, 0.3),
        (None, 1, 0.154),
        (0.393, None, 0.0),
    ]


def test_a_trace_may_be_gzipped(tmp_path: Path) -> None:
    plain = SAMPLES / "azure2023_conv_8.csv"
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert [item.due_s for item in read_trace(packed).items] == [item.due_s for item in read_trace(plain).items]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "has the columns a, b: known are input_tokens"),
        ("input_tokens,output_tokens\n1,2\n3,x\n", "line 3: output_tokens is 'x': it must be a number"),
        ("input_tokens,output_tokens\n0,2\n", "line 2: input_tokens is 0: it must be a whole number of at least 1"),
        ("input_tokens,output_tokens\n1.5,2\n", "line 2: input_tokens is 1.5"),
        ("arrival_s,input_tokens,output_tokens\n-1,2,3\n", "line 2: arrival_s is -1: it must be 0 or more"),
        ("arrival_s,input_tokens,output_tokens\nnan,2,3\n", "line 2: arrival_s is nan"),
        ("{]\n", "line 1 is not JSON"),
        ("{" + '"a":{' * 100_000, "line 1 is not JSON"),
        ('{"input_length": 3}\n', "line 1: it needs hash_ids, input_length, output_length"),
        ('{"timestamp":0,"input_length":100,"output_length":1,"hash_ids":[1,2,3]}\n', "give --block-tokens"),
        ('{"input_length":10,"output_length":1,"hash_ids":[1]}\n', "timestamp is None: it must be a number"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "trace").write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_trace(tmp_path / "trace")
    assert words in str(refused.value)


def test_a_round_whose_prefix_is_not_what_was_said_is_refused(tmp_path: Path) -> None:
    rows = (SAMPLES / "agentic_sessions_4.csv").read_text().replace("0,117,1,2518", "0,117,1,2517")
    (tmp_path / "trace.csv").write_text(rows)
    with pytest.raises(ConfigError, match="line 3: prefix_len is 2517, the rounds before it have 2518 tokens"):
        read_trace(tmp_path / "trace.csv")


def test_a_stated_block_size_is_taken_or_contradicted(tmp_path: Path) -> None:
    row = '{"timestamp":5,"input_length":100,"output_length":1,"hash_ids":[1,2,3]}\n'
    (tmp_path / "trace").write_text(row)
    (item,) = read_trace(tmp_path / "trace", block_tokens=33).items
    assert [piece.num_tokens for piece in item.pieces] == [33, 33, 33, 1]
    with pytest.raises(ConfigError, match="3 hash_ids of 20 tokens do not make 100"):
        read_trace(tmp_path / "trace", block_tokens=20)


def test_a_file_that_is_not_there_or_not_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "bad.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "bad.csv.gz")
