"""How to talk to a server is found by asking it."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.traffic.traffic_builders import FAST, make_item, run
from twostroke.errors import ConfigError, RemoteError
from twostroke.traffic.http_client import Address, HttpClient
from twostroke.traffic.mock_server import CONTEXT, MODEL, MockSchedule, serving
from twostroke.traffic.probe import Probed, probe
from twostroke.traffic.prompts import WORDS
from twostroke.traffic.server import Api


async def probed(schedule: MockSchedule, **changes: Any) -> tuple[Probed, str]:
    """What was found, and a prompt of 50 tokens."""
    asked: dict[str, Any] = {
        "model": None,
        "api": Api.COMPLETIONS,
        "tokenizer": None,
        "counts_along": False,
        "timeout_s": 5.0,
        "extra": {},
    }
    async with serving(schedule) as address:
        client = HttpClient(Address.of(address))
        try:
            found = await probe(client, **(asked | changes))
            return found, await found.prompts.text_of(make_item(50))
        finally:
            await client.close()


def test_a_server_like_ours_takes_lengths_and_counts() -> None:
    found, text = run(probed(FAST))
    assert (found.server.model, found.context, found.counted_by) == (MODEL, CONTEXT, "the server's /tokenize")
    assert (found.server.dialect.has_lengths, found.server.dialect.has_usage) == (True, True)
    assert not found.server.dialect.counts_along
    assert len(text.split()) == 50


def test_a_strict_server_is_asked_without_our_fields() -> None:
    found, _ = run(probed(MockSchedule(ttft_s=0.0, itl_s=0.0, is_strict=True)))
    assert (found.server.dialect.has_lengths, found.server.dialect.has_usage) == (False, True)


def test_counting_along_is_asked_for_only_where_it_is_wished() -> None:
    found, _ = run(probed(FAST, counts_along=True))
    assert found.server.dialect.counts_along


def test_a_server_that_cannot_count_is_measured_by_its_usage() -> None:
    found, text = run(probed(MockSchedule(ttft_s=0.0, itl_s=0.0, has_tokenize=False)))
    assert found.counted_by == "the usage of two probes: 1.00 tokens a word"
    assert found.prompts.count is None
    assert len(text.split()) == 50


def test_a_tokenizer_at_hand_counts(tmp_path: Path) -> None:
    """It splits words in two, the server adds nothing: what differs is what the server is thought to add."""
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate([*WORDS, "?"])}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for place in (tmp_path, tmp_path / "tokenizer.json"):
        found, text = run(probed(FAST, tokenizer=place))
        assert found.counted_by == str(tmp_path / "tokenizer.json")
        assert len(text.split()) == 50


def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--tokenizer .* cannot be read"):
        run(probed(FAST, tokenizer=tmp_path))


def test_a_server_that_refuses_for_other_reasons_is_not_asked_again() -> None:
    with pytest.raises(RemoteError, match="http 503: the mock fails on purpose") as refused:
        run(probed(MockSchedule(fail_every=1)))
    assert refused.value.kind == "http 503"
