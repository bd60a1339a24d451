"""Models fetched over HTTP: progress, what is refused, one at a time, ended when nobody waits."""

import asyncio
import json
import threading
from typing import Any

import pytest

from tests.serve.ollama.ollama_builders import lines_of, ollama_of, problem_of
from tests.serve.serve_builders import ScriptedModel, ScriptedShelf, registry_of
from twostroke.errors import DownloadError, ModelNotFoundError, TermsError
from twostroke.serve.app import create_app
from twostroke.serve.ollama.pull import Pull

PULL = "/api/pull"
MODEL = {"model": "tiny:1b"}


def test_progress_comes_as_lines_and_success_last() -> None:
    shelf = ScriptedShelf()
    with ollama_of(shelf=shelf) as client:
        lines = lines_of(client.post(PULL, json=MODEL))
    assert lines[0] == {"status": "pulling manifest"}
    assert lines[-2] == {"status": "pulling tiny:1b", "total": 30, "completed": 30}
    assert lines[-1] == {"status": "success"}
    assert shelf.outcome == ["fetched tiny:1b"]


def test_a_total_nobody_knows_is_left_out() -> None:
    with ollama_of(shelf=ScriptedShelf(says_total=False)) as client:
        lines = lines_of(client.post(PULL, json=MODEL))
    assert lines[-2] == {"status": "pulling tiny:1b", "completed": 30}


def test_progress_that_comes_while_a_status_is_sent_is_told_next() -> None:
    told, may_end = threading.Event(), threading.Event()

    def fetch(hear: Any) -> None:
        hear(10, 30)
        told.wait(10)
        hear(30, 30)
        may_end.wait(10)

    async def watch() -> list[Any]:
        pull, statuses = Pull("tiny:1b", fetch), []
        async for status in pull.statuses(10.0):
            statuses.append(status)
            if status == {"status": "pulling tiny:1b", "total": 30, "completed": 10}:
                told.set()
                while pull._progress != (30, 30):  # the client reads slowly
                    await asyncio.sleep(0)
                may_end.set()
        return statuses

    assert asyncio.run(watch())[-2] == {"status": "pulling tiny:1b", "total": 30, "completed": 30}


def test_a_whole_reply_comes_at_the_end() -> None:
    with ollama_of() as client:
        response = client.post(PULL, json=MODEL | {"stream": False, "insecure": False})
    assert response.json() == {"status": "success"}


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize(
    ("refuse", "status", "told"),
    [
        (ModelNotFoundError("known are tiny:1b"), 404, "known are tiny:1b"),
        (TermsError("you must accept: twostroke pull tiny:1b --accept-terms"), 403, "--accept-terms"),
        (DownloadError("pip at /home/me said no"), 502, "tiny:1b could not be fetched: the server's log says why"),
        (OSError(28, "no space", "/home/me/models"), 502, "the server's log says why"),
    ],
)
def test_what_cannot_be_fetched_is_a_status(refuse: Exception, status: int, told: str, is_stream: bool) -> None:
    with ollama_of(shelf=ScriptedShelf(refuse=refuse)) as client:
        response = client.post(PULL, json=MODEL | {"stream": is_stream})
    assert response.status_code == status
    assert told in problem_of(response)
    assert "/home" not in response.text


@pytest.mark.parametrize(
    "fields", [{}, {"model": ""}, MODEL | {"insecure": True}, MODEL | {"username": "x"}, MODEL | {"stream": 1}]
)
def test_other_wishes_are_refused(fields: dict[str, Any]) -> None:
    shelf = ScriptedShelf()
    with ollama_of(shelf=shelf) as client:
        assert client.post(PULL, json=fields).status_code == 400
    assert shelf.outcome == []


def test_one_model_at_a_time_is_fetched() -> None:
    may_go_on = threading.Semaphore(0)
    shelf = ScriptedShelf(may_go_on=may_go_on)
    with ollama_of(shelf=shelf) as client:
        first: list[Any] = []
        thread = threading.Thread(target=lambda: first.append(client.post(PULL, json=MODEL)))
        thread.start()
        assert shelf.is_fetching.wait(timeout=10)
        refused = client.post(PULL, json={"model": "other:1b"})
        may_go_on.release(3)
        thread.join(timeout=10)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "tiny:1b is being fetched" in problem_of(refused)
        assert lines_of(first[0])[-1] == {"status": "success"}
        may_go_on.release(3)
        assert client.post(PULL, json={"model": "other:1b", "stream": False}).json() == {"status": "success"}
    assert shelf.outcome == ["fetched tiny:1b", "fetched other:1b"]


def test_a_closing_server_ends_the_download_and_takes_no_other() -> None:
    may_go_on = threading.Semaphore(0)
    shelf = ScriptedShelf(may_go_on=may_go_on)
    with ollama_of(shelf=shelf) as client:
        routes = client.app.state.routes  # type: ignore[attr-defined]
        first: list[Any] = []
        thread = threading.Thread(target=lambda: first.append(client.post(PULL, json=MODEL)))
        thread.start()
        assert shelf.is_fetching.wait(timeout=10)
        routes.is_draining = True
        assert client.post(PULL, json={"model": "other:1b"}).status_code == 503
        routes.cancel_all()
        may_go_on.release(3)
        thread.join(timeout=10)
    assert lines_of(first[0])[-1] == {"error": "the download of tiny:1b was cancelled"}
    assert shelf.outcome == ["cancelled"]


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_client_that_leaves_before_the_reply_ends_the_download(
    is_stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, cancel = threading.Semaphore(0), Pull.cancel

    def cancel_and_go_on(pull: Pull) -> None:
        cancel(pull)
        may_go_on.release(3)

    monkeypatch.setattr(Pull, "cancel", cancel_and_go_on)
    shelf = ScriptedShelf(may_go_on=may_go_on)
    body = json.dumps(MODEL | {"stream": is_stream}).encode()

    async def receive() -> dict[str, Any]:
        if not said:
            said.append(True)
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.to_thread(shelf.is_fetching.wait, 10)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        assert message

    said: list[bool] = []
    app = create_app(registry_of(ScriptedModel()), shelf=shelf)
    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": PULL, "headers": headers, "query_string": b""}
    asyncio.run(app(scope, receive, send))
    assert shelf.outcome == ["cancelled"]
