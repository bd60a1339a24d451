"""What a model takes of memory, read off its headers before it is loaded. Called by the server; loads nothing."""

from dataclasses import dataclass
from math import ceil

from twostroke.config import Config
from twostroke.engine.kv_store import MEMORY_SHARE, KVSize, available_memory_bytes
from twostroke.load import MAX_STEP_TOKENS, default_context, kv_precision, packed_weight_bytes, size_kv
from twostroke.model.catalog import model_defaults, resolve_model
from twostroke.model.families import build_program
from twostroke.model.open import open_model
from twostroke.program.program import Program
from twostroke.schedule.config import SchedulerConfig

LEAST_CONTEXT = 4096  # tokens of a conversation; of a model whose context nobody stated, more is taken where it is free
BOUNDLESS_BYTES = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """The least memory a model is worth loading into."""

    weight_bytes: int
    kv_bytes: int  # for one sequence of `context` tokens
    context: int

    @property
    def total_bytes(self) -> int:
        """Weights and KV; the latter gets at most its share."""
        return max(self.weight_bytes + self.kv_bytes, ceil(self.kv_bytes / MEMORY_SHARE))

    def __str__(self) -> str:
        parts = f"weights of {_gb(self.weight_bytes)} + KV of {self.context} tokens, {_gb(self.kv_bytes)}"
        if self.total_bytes > self.weight_bytes + self.kv_bytes:
            return f"{parts}, of which at most {MEMORY_SHARE:.0%} of the memory may be = {_gb(self.total_bytes)}"
        return f"{parts} = {_gb(self.total_bytes)}"


def footprint(
    model: str, *, config: Config, context: int | None = None, kv: str | None = None, draft_model: str | None = None
) -> Footprint:
    """Least memory of a model with these options. Raises what loading it would raise for its name and headers."""
    program = _program(model, config)
    draft = None if draft_model is None else _program(draft_model, config)
    defaults = model_defaults(model, ollama_models=config.ollama_models)
    wished = default_context(program, defaults) if context is None else context
    size = _size(program, kv, context=min(program.context_length, LEAST_CONTEXT) if wished is None else wished)
    weight_bytes, kv_bytes = packed_weight_bytes(program), size.total_bytes
    if draft is not None:
        weight_bytes += packed_weight_bytes(draft)
        kv_bytes += _size(draft, kv, context=min(draft.context_length, size.context)).total_bytes
    return Footprint(weight_bytes=weight_bytes, kv_bytes=kv_bytes, context=size.context)


def _program(model: str, config: Config) -> Program:
    return build_program(open_model(resolve_model(model, home=config.home, ollama_models=config.ollama_models)))


def _size(program: Program, kv: str | None, *, context: int) -> KVSize:
    return size_kv(
        program,
        SchedulerConfig(max_rows=1, max_step_tokens=MAX_STEP_TOKENS),
        precision=kv_precision(kv),
        context=context,
        available_bytes=BOUNDLESS_BYTES,
    )


def free_memory_bytes() -> int:
    """What this process may still take."""
    return available_memory_bytes()


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB"
