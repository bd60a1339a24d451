"""The same bytes as in one go, and large replies are made beside the event loop."""

import threading
from typing import Any

import pytest
from hypothesis import given, strategies as st
from starlette.responses import JSONResponse

from tests.serve.serve_builders import MODEL, ScriptedModel, client_of
from twostroke.serve.json_body import MANY_ANSWERS, json_body

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_the_bytes_are_those_of_one_go(value: dict[str, Any]) -> None:
    assert json_body(value) == JSONResponse(value).body


def test_what_json_cannot_say_is_an_error() -> None:
    with pytest.raises(ValueError, match="JSON"):
        json_body({"a": [[float("nan")]]})


@pytest.mark.parametrize(("count", "is_beside"), [(1, False), (MANY_ANSWERS, True), (40, True)])
def test_many_vectors_become_json_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, count: int, is_beside: bool
) -> None:
    threads: list[str] = []

    def spying(value: dict[str, Any]) -> bytes:
        threads.append(threading.current_thread().name)
        return json_body(value)

    monkeypatch.setattr("twostroke.serve.routes.json_body", spying)
    with client_of(ScriptedModel()) as client:
        response = client.post("/v1/embeddings", json={"model": MODEL, "input": ["hi"] * count})
    assert len(response.json()["data"]) == count
    assert response.headers["content-type"] == "application/json"
    assert [name.startswith("asyncio_") for name in threads] == [is_beside]
