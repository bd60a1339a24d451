"""A request that is over leaves no garbage: everything of it is freed with its reply, without the cycle collector.

What only the collector frees stays until it comes by, a hundred requests later and with each one's prompt, steps,
grammar and native state: memory would rise and fall by them, and what was once taken from the system is rarely
given back.
"""

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.builders_llm import ASK, LOOP, config_of, open_llm, write_puppet
from tests.serve.serve_builders import client_of
from twostroke.handle import Handle
from twostroke.llm import LLM
from twostroke.params import BeamSearch, SamplingParams
from twostroke.serve.llm_loader import LLMLoader
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.model_slot import served_models
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


@pytest.fixture(scope="module")
def client(puppet: Path) -> Iterator[TestClient]:
    loader = LLMLoader(config=config_of(puppet.parent), threads=1, kv="f32")
    models = ModelRegistry(served_models([str(puppet)], aliases=()), loader=loader, free_bytes=lambda: 2**40)
    models.load_first()
    with client_of(models) as client:
        yield client
    models.close()


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
