"""The `llm` command with a model of an OpenAI-compatible server, as its own manual sets one up."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.client_builders import ANSWER, MODEL, SCHEMA, chat_server, client_library, run_module
from tests.e2e.server_process import ServerProcess

client_library("llm")
pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with chat_server(tmp_path_factory.mktemp("puppet")) as one:
        yield one


def ask(server: ServerProcess, folder: Path, *arguments: str) -> str:
    place = f"- model_id: two\n  model_name: {MODEL}\n  api_base: {server.address}/v1\n  supports_schema: true\n"
    (folder / "extra-openai-models.yaml").write_text(place)
    env = os.environ | {"LLM_USER_PATH": str(folder)}
    return run_module("llm", ["prompt", "-m", "two", "--key", "none", *arguments], env=env)


@pytest.mark.parametrize("options", [[], ["--no-stream"], ["-s", "Be brief.", "-o", "temperature", "0"]])
def test_a_prompt_is_answered(server: ServerProcess, tmp_path: Path, options: list[str]) -> None:
    assert ask(server, tmp_path, "hi", *options) == f"{ANSWER}\n"


def test_a_conversation_goes_on(server: ServerProcess, tmp_path: Path) -> None:
    assert ask(server, tmp_path, "hi") == f"{ANSWER}\n"
    assert ask(server, tmp_path, "and?", "--continue") == f"{ANSWER}\n"


def test_a_schema_is_followed(server: ServerProcess, tmp_path: Path) -> None:
    said = ask(server, tmp_path, "hi", "--schema", json.dumps(SCHEMA), "-o", "max_tokens", "60")
    assert set(json.loads(said)) == {"name", "age"}
