"""`twostroke serve` over a real engine whose model says what a table tells it to, and over the default model."""

import itertools
import json
import re
import struct
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.cases.puppet import EOS, build_puppet, byte_token
from tests.e2e.server_process import ROOT, ServerProcess, read_until, running_server, wait_until

FIRST, LAST = 264, 265  # the tokens that follow the base vocabulary: "one", "two"
PEPPER = [byte_token(byte) for byte in "🌶".encode()]
# one -> the four bytes of an emoji -> two -> A -> B -> C -> end; x -> y -> x ... for ever
SAYS = [FIRST, *PEPPER, LAST, *(byte_token(byte) for byte in b"ABC"), EOS]
LOOP = [byte_token(byte) for byte in b"xy"]
TABLE = dict(itertools.pairwise(SAYS)) | {LOOP[0]: LOOP[1], LOOP[1]: LOOP[0]}
TEXT = "🌶twoABC"
CONTEXT = 32_768
TWOSTROKE = ["-c", "import sys; from twostroke.cli.entry import main; sys.exit(main())"]


def with_context(file: bytes, context: int) -> bytes:
    """The same file with a context that takes seconds to fill."""
    key = b"llama.context_length" + struct.pack("<I", 4)  # a u32 follows
    assert file.count(key + struct.pack("<I", 128)) == 1
    return file.replace(key + struct.pack("<I", 128), key + struct.pack("<I", context))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    file = tmp_path_factory.mktemp("puppet") / "puppet.gguf"
    file.write_bytes(with_context(build_puppet(TABLE, extra_tokens=["one", "two"]).file, CONTEXT))
    with running_server([*TWOSTROKE, "serve", "-m", str(file), "--port", "0", "--threads", "1"]) as one:
        yield one


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as one:
        yield one


@pytest.fixture
def model(client: openai.OpenAI) -> str:
    (only,) = client.models.list()
    return only.id


def streamed(client: openai.OpenAI, **fields: Any) -> tuple[list[str], str | None]:
    chunks = list(client.completions.create(stream=True, **fields))
    return [chunk.choices[0].text for chunk in chunks[:-1]], chunks[-1].choices[0].finish_reason


def test_the_model_goes_by_the_name_of_its_file(model: str) -> None:
    assert model == "puppet.gguf"


def test_a_character_of_four_tokens_arrives_whole_and_everything_else_at_once(
    client: openai.OpenAI, model: str
) -> None:
    pieces, reason = streamed(client, model=model, prompt=[FIRST], max_tokens=20)
    assert pieces == ["🌶", "two", "A", "B", "C"]
    assert reason == "stop"


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ("AB", "🌶two"),
        ("🌶", ""),
        (["oA", "C"], "🌶tw"),
        ("twoABC", "🌶"),
        ("CD", TEXT),
        ("BX", TEXT),
        (["C"], "🌶twoAB"),
    ],
)
def test_stop_strings_cross_tokens_and_are_never_shown(client: openai.OpenAI, model: str, stop: Any, text: str) -> None:
    asked: dict[str, Any] = {"model": model, "prompt": [FIRST], "stop": stop, "max_tokens": 20}
    whole = client.completions.create(**asked).choices[0]
    assert (whole.text, whole.finish_reason) == (text, "stop")
    pieces, reason = streamed(client, **asked)
    assert ("".join(pieces), reason) == (text, "stop")
    assert all(pieces)


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 8, 9, 10])
def test_exactly_as_many_tokens_as_asked_and_ties_are_a_stop(
    client: openai.OpenAI, model: str, max_tokens: int
) -> None:
    reply = client.completions.create(model=model, prompt=[FIRST], max_tokens=max_tokens)
    assert reply.usage is not None
    assert reply.usage.completion_tokens == min(max_tokens, 9)
    assert reply.choices[0].finish_reason == ("length" if max_tokens < 9 else "stop")


@pytest.mark.parametrize("prompt", [[512], [-1], [2**31], [2**63], [[FIRST], [512]]])
@pytest.mark.parametrize("is_stream", [False, True])
def test_prompts_the_model_cannot_read_are_a_400(
    client: openai.OpenAI, model: str, prompt: Any, is_stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=model, prompt=prompt, stream=is_stream)
    assert refused.value.param == "prompt"


def test_a_chat_with_a_model_that_has_no_template_is_a_400_without_our_folders(
    client: openai.OpenAI, model: str
) -> None:
    messages: Any = [{"role": "user", "content": "hi"}]
    with pytest.raises(openai.BadRequestError, match="no chat template") as refused:
        client.chat.completions.create(model=model, messages=messages, stream=True)
    assert "/puppet.gguf" not in str(refused.value)


def test_a_request_beyond_the_context_is_a_400_with_the_arithmetic(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError, match="the context is") as refused:
        client.completions.create(model=model, prompt=[FIRST] * 10, max_tokens=10**9)
    assert refused.value.code == "context_length_exceeded"


def test_a_seed_repeats_an_answer_and_costs_no_default(client: openai.OpenAI, model: str) -> None:
    texts = {
        client.completions.create(model=model, prompt=[400], seed=seed, temperature=9.0, max_tokens=8).choices[0].text
        for seed in (1, 1, 2)
    }
    assert len(texts) <= 2
    assert client.completions.create(model=model, prompt=[FIRST], seed=3).choices[0].text == TEXT


def test_a_bias_forces_a_token_and_a_ban_avoids_one(client: openai.OpenAI, model: str) -> None:
    letter = byte_token(ord("q"))
    asked: Any = {"model": model, "prompt": [FIRST], "max_tokens": 3}
    assert client.completions.create(**asked, logit_bias={str(letter): 100}).choices[0].text == "qqq"
    banned = client.completions.create(**asked, logit_bias={str(PEPPER[0]): -100}).choices[0].text
    assert not banned.startswith("🌶")
    for key in ("-1", "512", "abc", "99999999999999999999"):
        with pytest.raises(openai.BadRequestError, match="logit_bias"):
            client.completions.create(**asked, logit_bias={key: 1})


def test_choices_are_independent_reproducible_and_count_their_prompt_once(client: openai.OpenAI, model: str) -> None:
    asked: Any = {
        "model": model,
        "prompt": [400],
        "max_tokens": 20,
        "temperature": 40.0,
        "seed": 7,
        "extra_body": {"ignore_eos": True},
    }
    first, again = (client.completions.create(**asked, n=8) for _ in range(2))
    texts = [choice.text for choice in first.choices]
    assert [choice.text for choice in again.choices] == texts
    assert len(set(texts)) == 8
    assert [choice.text for choice in client.completions.create(**asked, n=2).choices] == texts[:2]
    assert client.completions.create(**asked).choices[0].text == texts[0]
    assert first.usage is not None
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (1, 8 * 20)


def test_bytes_of_logprobs_join_to_the_text_and_there_is_one_entry_per_token(client: openai.OpenAI, model: str) -> None:
    reply = client.completions.create(model=model, prompt=[FIRST], max_tokens=20, logprobs=1)
    told, usage = reply.choices[0].logprobs, reply.usage
    assert told is not None
    assert usage is not None
    assert len(told.tokens or []) == usage.completion_tokens == 9
    assert (told.tokens or [])[:5] == ["bytes:\\xf0", "bytes:\\x9f", "bytes:\\x8c", "bytes:\\xb6", "two"]
    assert told.text_offset == [0, 0, 0, 0, 1, 4, 5, 6, 7]
    assert all(-1e-3 < (value or 0.0) <= 0 for value in told.token_logprobs or [])


def test_the_fewest_tokens_come_before_an_end(client: openai.OpenAI, model: str) -> None:
    reply = client.completions.create(model=model, prompt=[FIRST], max_tokens=30, extra_body={"min_tokens": 12})
    assert reply.usage is not None
    assert reply.usage.completion_tokens >= 12
    assert reply.choices[0].text.startswith(TEXT)


def test_a_text_goes_to_tokens_and_back(server: ServerProcess) -> None:
    told = server.post("/tokenize", {"prompt": "hello 🌶"})
    assert told["count"] == len(told["tokens"])
    assert server.post("/detokenize", {"tokens": told["tokens"]})["prompt"].endswith("hello 🌶")


def test_a_ledger_adds_up_to_the_time_the_server_took(server: ServerProcess, model: str) -> None:
    fields = {"model": model, "prompt": [LOOP[0]], "max_tokens": 50, "ledger": True}
    reply = server.post("/v1/completions", fields)
    record = server.get(f"/v1/requests/{reply['id']}")
    ledger = dict(record["answers"][0]["ledger"])
    ending = ("overhead", "backpressure")  # the record goes on until the reply was sent
    assert {part: time_s for part, time_s in ledger.items() if part not in ending} == {
        part: time_s for part, time_s in reply["ledger"].items() if part not in ending
    }
    assert {"parse", "tokenize", "queue", "prefill", "decode"} <= set(ledger)
    stalls = ledger.pop("stall")
    total_s = sum(ledger.values()) + sum(stall["time_s"] for stall in stalls)
    assert total_s == pytest.approx(record["answers"][0]["e2e_s"], abs=1e-6)


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_delete_in_a_long_prefill_frees_its_blocks(server: ServerProcess, model: str, is_stream: bool) -> None:
    fields = {"model": model, "prompt": [LOOP[1]] * (CONTEXT - 2), "max_tokens": 1, "stream": is_stream}
    with server.connect("/v1/completions", fields, request_id=f"long-{is_stream}") as connection:
        wait_until(lambda: server.health()["kv_blocks"]["held"] > 0)
        server.get(f"/v1/requests/long-{is_stream}", method="DELETE")
        wait_until(server.is_idle)
        assert b"cancelled by a DELETE" in read_until(connection, b"DELETE")
    assert server.get(f"/v1/requests/long-{is_stream}")["cancelled_by"] == "deleted"


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_client_that_leaves_frees_its_blocks(server: ServerProcess, model: str, is_stream: bool) -> None:
    fields = {"model": model, "prompt": [LOOP[0]], "max_tokens": CONTEXT - 2, "stream": is_stream}
    connection = server.connect("/v1/completions", fields)
    if is_stream:
        read_until(connection, b'"text":"y"')
    wait_until(lambda: server.health()["kv_blocks"]["held"] > 0)
    connection.close()
    wait_until(server.is_idle)


def test_leaving_while_a_long_prompt_is_read_frees_its_blocks(server: ServerProcess, model: str) -> None:
    fields = {"model": model, "prompt": [LOOP[0]] * (CONTEXT - 2), "max_tokens": 1}
    connection = server.connect("/v1/completions", fields)
    wait_until(lambda: server.health()["kv_blocks"]["held"] > 0)
    connection.close()
    wait_until(server.is_idle)


def test_eight_streams_at_once_say_what_each_says_alone(client: openai.OpenAI, model: str) -> None:
    asked = [
        {"model": model, "prompt": [number], "seed": number, "temperature": 40.0, "max_tokens": 16}
        for number in range(3, 11)
    ]
    alone = [streamed(client, **fields) for fields in asked]
    together: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda index=index: together.update({index: streamed(client, **asked[index])}))
        for index in range(len(asked))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[index] for index in range(len(asked))] == alone
    assert len({"".join(pieces) for pieces, _ in alone}) == len(asked)


@pytest.mark.model
@pytest.mark.usefixtures("users_models")
@pytest.mark.slow
def test_eight_streams_of_the_default_model_equal_run() -> None:
    prompts = [f"Tell me one fact about the number {number}." for number in range(8)]
    with running_server([*TWOSTROKE, "serve", "--port", "0"]) as server:
        client = openai.OpenAI(base_url=f"{server.address}/v1", api_key="none")
        (model,) = [entry.id for entry in client.models.list()]
        texts: dict[int, str] = {}

        def ask(index: int) -> None:
            messages: Any = [{"role": "user", "content": prompts[index]}]
            stream = client.chat.completions.create(model=model, messages=messages, max_tokens=24, stream=True)
            texts[index] = "".join(chunk.choices[0].delta.content or "" for chunk in stream)

        threads = [threading.Thread(target=ask, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        client.close()
        assert server.stop()[0] == 0
    for index, prompt in enumerate(prompts):
        command = [sys.executable, *TWOSTROKE, "run", "--json", "--max-tokens", "24", prompt]
        done = subprocess.run(command, cwd=Path(ROOT), capture_output=True, check=True)
        assert json.loads(done.stdout)["text"] == texts[index]


def numbers_of(server: ServerProcess) -> dict[str, float]:
    """Of the only model there is: its name is left out."""
    with urllib.request.urlopen(f"{server.address}/metrics") as response:
        lines = response.read().decode().splitlines()
    samples = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    label = re.compile(r'model_name="puppet.gguf",|,?model_name="puppet.gguf"')
    names = {name: label.sub("", name).removesuffix("{}").removeprefix("twostroke_") for name, _ in samples}
    return {names[name]: float(value) for name, value in samples}


def test_metrics_account_for_every_answer(server: ServerProcess, client: openai.OpenAI, model: str) -> None:
    before = numbers_of(server)
    for max_tokens in (1, 3, 20):
        client.completions.create(model=model, prompt=[FIRST], max_tokens=max_tokens, n=2)
    endless = {"model": model, "prompt": [LOOP[0]], "max_tokens": CONTEXT - 2, "stream": True}
    connection = server.connect("/v1/completions", endless)
    read_until(connection, b'"text":"y"')
    connection.close()
    wait_until(server.is_idle)
    after = numbers_of(server)
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    ends = {name: value for name, value in grown.items() if name.startswith("request_success_total") and value}
    assert ends == {
        'request_success_total{finished_reason="length"}': 4,
        'request_success_total{finished_reason="stop"}': 2,
        'request_success_total{finished_reason="cancelled"}': 1,
    }
    assert grown["time_to_first_token_seconds_count"] == grown["e2e_request_latency_seconds_count"] == 7
    assert grown["cancel_latency_seconds_count"] == 1
    assert grown['wasted_tokens_total{phase="decode"}'] > 0
    assert grown["iteration_tokens_total_count"] > 0
    assert (after["num_requests_running"], after["num_requests_waiting"]) == (0, 0)
    assert after["kv_cache_usage_perc"] == 0
