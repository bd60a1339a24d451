"""A request that is over leaves no garbage: everything of it is freed with its reply, without the cycle collector.

What only the collector frees stays until it comes by, a hundred requests later and with each one's prompt, steps,
grammar and native state: memory would rise and fall by them, and what was once taken from the system is rarely
given back.
"""

import gc
import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from tests.builders_llm import ASK, LOOP, config_of, open_llm, write_puppet
from tests.serve.serve_builders import client_of
from twostroke.handle import Handle
from twostroke.llm import LLM
from twostroke.params import BeamSearch, SamplingParams
from twostroke.serve.app import create_app
from twostroke.serve.http_protocol import HttpProtocol
from twostroke.serve.llm_loader import LLMLoader
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.model_slot import served_models
from twostroke.serve.server import listen
from twostroke.structure import Structure, StructureKind

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
REGEX = Structure(kind=StructureKind.REGEX, source="[a-z]{4}")
ASKED = {"model": "puppet.gguf", "temperature": 0, "max_tokens": 8}
PROMPT = ASKED | {"prompt": ASK}
ENDLESS = ASKED | {"prompt": LOOP, "max_tokens": 900, "timeout_s": 0.01}
MESSAGES = ASKED | {"messages": [{"role": "user", "content": "hi"}]}


@contextmanager
def collected(found: "Counter[str]") -> Iterator[None]:
    """Count the objects of our classes that the block left to the collector."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found.update(type(each).__name__ for each in gc.garbage if type(each).__module__.startswith("twostroke."))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.fixture(scope="module")
def puppet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_puppet(tmp_path_factory.mktemp("freed") / "puppet.gguf")


@contextmanager
def registry(puppet: Path) -> Iterator[ModelRegistry]:
    loader = LLMLoader(config=config_of(puppet.parent), threads=1, kv="f32")
    models = ModelRegistry(served_models([str(puppet)], aliases=()), loader=loader, free_bytes=lambda: 2**40)
    models.load_first()
    yield models
    models.close()


@pytest.fixture(scope="module")
def client(puppet: Path) -> Iterator[TestClient]:
    with registry(puppet) as models, client_of(models) as client:
        yield client


@pytest.fixture(scope="module")
def server(puppet: Path) -> Iterator[uvicorn.Server]:
    """On a real connection, as `serve` has it, in a thread of this process."""
    with registry(puppet) as models, listen(port=0) as listener:
        config = uvicorn.Config(create_app(models), log_config=None, lifespan="off", http=HttpProtocol, ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        config.port = listener.getsockname()[1]
        yield server
        server.should_exit = True
        thread.join()


def ask(server: uvicorn.Server, fields: dict[str, Any], *, num_bytes: int | None) -> None:
    """Read so much of the reply, all of it for None, leave, and wait until the connection is gone."""
    connection = http.client.HTTPConnection("127.0.0.1", server.config.port, timeout=30)
    headers = {"Content-Type": "application/json", "Connection": "close"}
    connection.request("POST", COMPLETIONS, json.dumps(fields), headers)
    connection.getresponse().read(num_bytes)
    connection.close()
    while server.server_state.connections or server.server_state.tasks:
        time.sleep(0.001)


@pytest.mark.parametrize("num_bytes", [None, 50])
@pytest.mark.parametrize("is_stream", [True, False])
def test_a_request_on_a_real_connection_leaves_nothing_read_to_its_end_or_not(
    server: uvicorn.Server, is_stream: bool, num_bytes: int | None
) -> None:
    fields = PROMPT | {"prompt": LOOP, "max_tokens": 500 if num_bytes else 8, "stream": is_stream}
    ask(server, fields, num_bytes=num_bytes)
    found: Counter[str] = Counter()
    with collected(found):
        ask(server, fields, num_bytes=num_bytes)
        time.sleep(0.05)  # the engine's thread is through with it
    assert not found


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        pytest.param(COMPLETIONS, PROMPT, 200, id="whole"),
        pytest.param(COMPLETIONS, PROMPT | {"stream": True}, 200, id="streamed"),
        pytest.param(COMPLETIONS, PROMPT | {"n": 3}, 200, id="several choices"),
        pytest.param(COMPLETIONS, PROMPT | {"prompt": ["a?", "b?"]}, 200, id="several prompts"),
        pytest.param(COMPLETIONS, PROMPT | {"logprobs": 2, "prompt_logprobs": 1}, 200, id="scored"),
        pytest.param(COMPLETIONS, PROMPT | {"use_beam_search": True, "n": 2}, 200, id="beams"),
        pytest.param(
            COMPLETIONS, PROMPT | {"structured_outputs": {"regex": "[a-z]{4}"}}, 200, id="held to a structure"
        ),
        pytest.param(COMPLETIONS, ENDLESS, 499, id="out of time"),
        pytest.param(COMPLETIONS, ENDLESS | {"stream": True}, 200, id="out of time in a stream"),
        pytest.param(COMPLETIONS, PROMPT | {"prompt": "a" * 100_000}, 400, id="beyond the context"),
        pytest.param(COMPLETIONS, PROMPT | {"unheard_of": 1}, 400, id="refused"),
        pytest.param(COMPLETIONS, PROMPT | {"structured_outputs": {"regex": "("}}, 400, id="broken structure"),
        pytest.param(CHAT, MESSAGES, 200, id="chat"),
        pytest.param(CHAT, MESSAGES | {"stream": True}, 200, id="streamed chat"),
    ],
)
def test_a_request_of_any_kind_and_end_leaves_nothing(
    client: TestClient, path: str, fields: dict[str, Any], status: int
) -> None:
    client.post(path, json=fields)  # what is made once stays
    found: Counter[str] = Counter()
    with collected(found):
        statuses = [client.post(path, json=fields).status_code for _ in range(2)]
    assert statuses == [status] * 2
    assert not found


@pytest.mark.parametrize(
    "params",
    [
        pytest.param(SamplingParams(max_tokens=8), id="plain"),
        pytest.param(SamplingParams(max_tokens=8, structure=REGEX), id="held"),
        pytest.param(SamplingParams(temperature=0, max_tokens=8, beam=BeamSearch()), id="beams"),
    ],
)
def test_a_request_of_the_library_leaves_nothing(puppet: Path, params: SamplingParams) -> None:
    found: Counter[str] = Counter()
    with open_llm(puppet) as llm:
        llm.submit(ASK, params).result()
        with collected(found):
            llm.submit(ASK, params).result()
            told: list[object] = []
            _hear_all(llm, params, told)
    assert told
    assert not found


def _hear_all(llm: LLM, params: SamplingParams, told: list[object]) -> None:
    """With a listener that holds its own request's handle, as the server's does."""
    handles: list[Handle] = []
    handles.append(llm.submit(ASK, params, on_event=lambda event: told.append((event, len(handles)))))
    handles[0].result()
    llm.snapshot()  # the engine's thread is through with it
