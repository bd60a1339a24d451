"""Requests in Ollama's form, and its client over the app in front of a scripted model."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from tests.serve.serve_builders import MODEL, ScriptedModel, ScriptedShelf, client_of

GENERATE, CHAT = "/api/generate", "/api/chat"


def make_generate(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "hi", **fields}


def make_chat(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}


@contextmanager
def ollama_of(
    model: ScriptedModel | None = None, *, shelf: ScriptedShelf | None = None, **options: Any
) -> Iterator[TestClient]:
    with client_of(model, shelf=shelf or ScriptedShelf(), **options) as client:
        yield client


def lines_of(response: Any) -> list[dict[str, Any]]:
    """Every object of a stream; anything else on the wire is a mistake."""
    assert response.headers["content-type"] == "application/x-ndjson"
    assert "content-length" not in response.headers
    assert response.text.endswith("\n")
    return [json.loads(line) for line in response.text.splitlines()]


def problem_of(response: Any) -> str:
    """The text of an error, checked for its form."""
    body = response.json()
    assert set(body) == {"error"}
    problem: str = body["error"]
    assert isinstance(problem, str)
    return problem
