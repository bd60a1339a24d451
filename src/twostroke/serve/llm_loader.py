"""Loads models as the flags of the server say, and knows those that are on this machine. Called by the registry.

A name is compared with the names that are known, never opened: what is not here is neither read nor fetched.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from twostroke.config import Config
from twostroke.core.peaks import Peaks
from twostroke.footprint import Footprint, footprint
from twostroke.llm import LLM
from twostroke.measure.peaks import known_peaks
from twostroke.model.catalog import OLLAMA_PREFIX, list_models, model_defaults, resolve_model
from twostroke.model.facts import ModelFacts, read_facts
from twostroke.params import SamplingParams
from twostroke.serve.model_slot import ModelEntry
from twostroke.serve.served_model import ServedModel

LATEST = ":latest"  # the tag of a name without one


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMLoader:
    """The same options for every model; a draft model for those that have one."""

    config: Config
    threads: int | None = None
    context: int | None = None
    kv: str | None = None
    speculate: str | None = None
    drafts: Mapping[str, str] = field(default_factory=dict)  # source -> that of its draft model

    def footprint(self, source: str) -> Footprint:
        draft_model = self.drafts.get(source)
        return footprint(source, config=self.config, context=self.context, kv=self.kv, draft_model=draft_model)

    def load(self, source: str, *, memory_bytes: int) -> LLM:
        llm = LLM(
            source,
            threads=self.threads,
            context=self.context,
            kv=self.kv,
            speculate=self.speculate,
            draft_model=self.drafts.get(source),
            memory_bytes=memory_bytes,
            config=self.config,
        )
        # Beside the first requests: the first of them that has a structure would hold up all others.
        threading.Thread(target=llm.prepare_structures, name="twostroke-vocabulary").start()
        return llm

    def peaks(self, model: ServedModel) -> Peaks | None:
        """Those earlier runs have measured: a probe now would disturb whoever is served."""
        assert isinstance(model, LLM), model
        home = self.config.home
        return known_peaks(home=home, isa=model.isa, threads=model.threads, weight_bytes=model.weight_bytes)

    def default_params(self, source: str) -> SamplingParams:
        return model_defaults(source, ollama_models=self.config.ollama_models).params

    def facts(self, source: str, *, with_arrays: bool = False) -> ModelFacts:
        path = resolve_model(source, home=self.config.home, ollama_models=self.config.ollama_models)
        return read_facts(path, with_arrays=with_arrays)


class PulledModels:
    """What `twostroke models` lists as here, by the same names; Ollama's own also without prefix and latest tag."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def names(self) -> Sequence[str]:
        return [entry.name for entry in self._entries()]

    def find(self, name: str) -> ModelEntry | None:
        known = {entry.name: entry for entry in self._entries()}
        wished = (name, name + LATEST, OLLAMA_PREFIX + name, OLLAMA_PREFIX + name + LATEST)
        return next((known[each] for each in wished if each in known), None)

    def _entries(self) -> Iterator[ModelEntry]:
        for entry in list_models(home=self._config.home, ollama_models=self._config.ollama_models):
            if entry.name.startswith(OLLAMA_PREFIX):
                yield ModelEntry((entry.name,), entry.name)
            elif entry.path is not None:
                yield ModelEntry((entry.name,), str(entry.path))  # by its path nothing is ever fetched
