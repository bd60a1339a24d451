"""The loader over real files, and which names a server knows that serves all that is here."""

import threading
from pathlib import Path

import pytest

from tests.builders_llm import ANSWER, ASK, TEMPLATE, add_ollama_model, config_of, puppet_bytes, write_puppet
from tests.serve.serve_builders import client_of
from twostroke.footprint import free_memory_bytes
from twostroke.model.catalog import _record
from twostroke.serve.llm_loader import LLMLoader, PulledModels
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.model_slot import ModelEntry, served_models

HUB = "hf:org/puppet:Q8_0"


def test_options_hold_for_every_model_and_defaults_are_known_without_loading(tmp_path: Path) -> None:
    name = add_ollama_model(tmp_path, "puppet", file=puppet_bytes(), temperature=0.25, num_predict=9)
    loader = LLMLoader(config=config_of(tmp_path), threads=1, context=64, kv="f32", speculate="ngram")
    params = loader.default_params(name)
    assert (params.temperature, params.max_tokens) == (0.25, 9)
    need = loader.footprint(name)
    with loader.load(name, memory_bytes=2**62) as llm:
        assert (llm.threads, llm.context, llm.kv_precision) == (1, 64, "f32")
        assert llm.default_params == params
    with loader.load(name, memory_bytes=need.total_bytes) as llm:
        assert need.weight_bytes + llm.kv_bytes <= need.total_bytes


def test_a_draft_model_is_loaded_and_counted_with_the_model_it_guesses_for(tmp_path: Path) -> None:
    own, other = (str(write_puppet(tmp_path / f"{name}.gguf", context=64)) for name in ("own", "other"))
    loader = LLMLoader(config=config_of(tmp_path), threads=1, kv="f32", drafts={own: other})
    need, alone = loader.footprint(own), loader.footprint(other)
    assert (need.weight_bytes, need.kv_bytes) == (2 * alone.weight_bytes, 2 * alone.kv_bytes)
    with loader.load(own, memory_bytes=need.total_bytes) as llm:
        assert llm.context == 64
        assert llm.draft_kv_bytes > 0
        assert need.weight_bytes + llm.kv_bytes <= need.total_bytes
    with loader.load(other, memory_bytes=alone.total_bytes) as llm:
        assert llm.draft_kv_bytes == 0


def pulled(home: Path) -> PulledModels:
    add_ollama_model(home, "puppet", file=puppet_bytes())
    _record(HUB, write_puppet(home / "hub.gguf"), home)
    return PulledModels(config_of(home))


def test_names_are_those_of_the_catalog_that_are_here(tmp_path: Path) -> None:
    assert pulled(tmp_path).names() == [HUB, "ollama:puppet:latest"]


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        (HUB, ModelEntry((HUB,), "{home}/hub.gguf")),
        ("ollama:puppet:latest", ModelEntry(("ollama:puppet:latest",), "ollama:puppet:latest")),
        ("puppet:latest", ModelEntry(("ollama:puppet:latest",), "ollama:puppet:latest")),
        ("puppet", ModelEntry(("ollama:puppet:latest",), "ollama:puppet:latest")),
    ],
)
def test_a_name_is_found_with_and_without_prefix_and_tag(tmp_path: Path, name: str, entry: ModelEntry) -> None:
    models = pulled(tmp_path)
    assert models.find(name) == ModelEntry(entry.names, entry.source.format(home=tmp_path))


@pytest.mark.parametrize(
    "name",
    ["smollm2:135m", "hf:org/puppet", "hub.gguf", "{home}/hub.gguf", "../hub.gguf", "ollama:../puppet", "", "a\0b"],
)
def test_what_is_not_here_by_that_very_name_is_unknown_even_if_it_could_be_opened_or_fetched(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert pulled(tmp_path).find(name.format(home=tmp_path)) is None


def test_two_real_models_answer_at_once_each_with_its_own_words(tmp_path: Path) -> None:
    sources = [str(write_puppet(tmp_path / f"{name}.gguf", template=TEMPLATE)) for name in ("one", "two")]
    models = ModelRegistry(
        served_models(sources), loader=LLMLoader(config=config_of(tmp_path), kv="f32"), free_bytes=free_memory_bytes
    )
    models.load_first()
    said: list[str] = []
    with client_of(models) as client:

        def ask(name: str) -> None:
            body = {"model": name, "prompt": ASK, "max_tokens": 20}
            said.append(client.post("/v1/completions", json=body).json()["choices"][0]["text"])

        threads = [threading.Thread(target=ask, args=(name,)) for name in ["one.gguf", "two.gguf"] * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.get("/health").json()["models"] == {"one.gguf": "loaded", "two.gguf": "loaded"}
    models.close()
    assert said == [ANSWER] * 8


def test_a_model_loaded_by_a_request_has_its_wait_in_the_ledger(tmp_path: Path) -> None:
    sources = [str(write_puppet(tmp_path / f"{name}.gguf", template=TEMPLATE)) for name in ("one", "two")]
    models = ModelRegistry(
        served_models(sources), loader=LLMLoader(config=config_of(tmp_path), kv="f32"), free_bytes=free_memory_bytes
    )
    models.load_first()
    with client_of(models) as client:
        body = {"model": "two.gguf", "prompt": ASK, "max_tokens": 20, "ledger": True}
        first, second = [client.post("/v1/completions", json=body).json()["ledger"] for _ in range(2)]
    models.close()
    assert first["load"] > 0
    assert first["parse"] >= 0
    assert "load" not in second
