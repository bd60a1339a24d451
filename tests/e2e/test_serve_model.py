"""`twostroke serve` over a real engine whose model says what a table tells it to, and over the default model."""

import itertools
import json
import struct
import subprocess
import sys
import threading
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
