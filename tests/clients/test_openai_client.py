"""OpenAI's own library against a real engine: what its typed helpers make of our replies."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel, Field

from tests.clients.client_builders import ANSWER, MODEL, SCHEMA, chat_server
from tests.e2e.server_process import ServerProcess

MESSAGES: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]


class Person(BaseModel):
    name: str = Field(max_length=3)
    age: int = Field(ge=0, le=9)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with chat_server(tmp_path_factory.mktemp("puppet")) as one:
        yield one


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as one:
        yield one


def test_a_typed_answer_is_parsed(client: openai.OpenAI) -> None:
    parsed = client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Person, max_tokens=60)
    assert isinstance(parsed.choices[0].message.parsed, Person)


def test_a_schema_is_followed_whole_and_streamed(client: openai.OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
    asked: Any = {"model": MODEL, "messages": MESSAGES, "response_format": form, "max_tokens": 60}
    whole = client.chat.completions.create(**asked).choices[0]
    stream = client.chat.completions.create(**asked, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == whole.message.content
    assert set(Person.model_validate(json.loads(text)).model_dump()) == {"name", "age"}
    assert whole.finish_reason == "stop"


def test_the_stream_helper_gathers_a_whole_answer(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, max_tokens=20) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content == ANSWER
    assert final.choices[0].finish_reason == "stop"


def test_the_asynchronous_client_asks_whole_and_streamed(server: ServerProcess) -> None:
    async def ask() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
            asked: Any = {"model": MODEL, "messages": MESSAGES, "max_tokens": 20}
            whole = await client.chat.completions.create(**asked)
            stream = await client.chat.completions.create(**asked, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            return [whole.choices[0].message.content, text]

    assert asyncio.run(ask()) == [ANSWER, ANSWER]
