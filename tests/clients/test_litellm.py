"""litellm, which stands between many programs and their servers."""

import asyncio
import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.client_builders import ANSWER, MODEL, SCHEMA, chat_server, client_library
from tests.e2e.server_process import ServerProcess

litellm = client_library("litellm")
pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with chat_server(tmp_path_factory.mktemp("puppet")) as one:
        yield one


@pytest.fixture(autouse=True)
def its_own_litter() -> Iterator[None]:
    """The library leaves event loops open: they are found here, not in somebody else's test."""
    yield
    gc.collect()


def asked(server: ServerProcess, **fields: Any) -> dict[str, Any]:
    where = {"model": f"openai/{MODEL}", "api_base": f"{server.address}/v1", "api_key": "none"}
    return where | {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 40} | fields


def test_a_chat_is_answered_and_counted(server: ServerProcess) -> None:
    reply = litellm.completion(**asked(server))
    assert reply.choices[0].message.content == ANSWER
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.completion_tokens == len(ANSWER) + 1  # the end token too
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_a_stream_is_put_together_again(server: ServerProcess) -> None:
    chunks = list(litellm.completion(**asked(server, stream=True, stream_options={"include_usage": True})))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == ANSWER
    whole = litellm.stream_chunk_builder(chunks)
    assert whole.choices[0].message.content == ANSWER
    assert whole.usage.completion_tokens == len(ANSWER) + 1


def test_many_ask_at_once(server: ServerProcess) -> None:
    async def ask() -> list[str]:
        replies = await asyncio.gather(*(litellm.acompletion(**asked(server)) for _ in range(8)))
        return [reply.choices[0].message.content for reply in replies]

    assert asyncio.run(ask()) == [ANSWER] * 8


def test_a_schema_is_followed(server: ServerProcess) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
    reply = litellm.completion(**asked(server, response_format=form))
    assert set(json.loads(reply.choices[0].message.content)) == {"name", "age"}


def test_errors_are_its_own(server: ServerProcess) -> None:
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        litellm.completion(**asked(server, temperature=-1))
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**asked(server, model="openai/other"))
    with pytest.raises(litellm.BadRequestError, match="the context is 1024"):
        litellm.completion(**asked(server, messages=[{"role": "user", "content": "word " * 5000}]))


def test_text_is_completed(server: ServerProcess) -> None:
    fields = asked(server, model=f"text-completion-openai/{MODEL}", prompt="why?")
    del fields["messages"]
    reply = litellm.text_completion(**fields)
    assert reply.choices[0].text == ANSWER
