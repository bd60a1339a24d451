"""How much KV memory a loaded model gets, and what a sequence uses of it: arithmetic; the reader owns the bytes."""

from collections.abc import Callable, Sequence as Seq
from dataclasses import dataclass
from pathlib import Path

from twostroke.core.event import KVUsage
from twostroke.errors import CapacityError, ConfigError
from twostroke.program.kv_precision import kv_head_bytes
from twostroke.program.program import KVGroup, Program
from twostroke.program.reader import KVSpec, Precision

MEMORY_SHARE = 0.5  # of the memory available at load: the rest is for packed weights, page cache and neighbours


@dataclass(frozen=True, slots=True)
class KVSize:
    """The store's shape and the longest sequence it serves."""

    spec: KVSpec
    context: int
    block_bytes: tuple[int, ...]  # per KV group

    @property
    def total_bytes(self) -> int:
        return sum(n * size for n, size in zip(self.spec.num_blocks, self.block_bytes, strict=True))


def block_bytes(group: KVGroup, *, precision: Precision, block_size: int) -> int:
    """Bytes of one block: K and V of every layer and head of the group."""
    return 2 * len(group.layers) * group.num_kv_heads * block_size * kv_head_bytes(precision, group.head_dim)


def plan_kv(
    program: Program,
    *,
    precision: Precision,
    block_size: int,
    context: int | None,
    max_sequences: int,
    max_step_tokens: int,
    available_bytes: int,
    weight_bytes: int = 0,
    part: float = 1.0,
    most_context: int | None = None,
) -> KVSize:
    """Size the store: room for `max_sequences` whole contexts, but at most a share of the memory.

    Never the part that `weight_bytes` of weights, which are not in memory yet, will take. `part`: of all that, as
    another model's store has the rest. `most_context`: a longer one is not needed, a shorter one no error.

    Raises ConfigError for a context beyond the model's, CapacityError where not even one context fits.
    """
    if context is not None and (type(context) is not int or not 1 <= context <= program.context_length):
        raise ConfigError(
            f"context is {context!r}: the model was made for 1 to {program.context_length} tokens", field="context"
        )
    wanted = context or min(program.context_length, most_context or program.context_length)
    sizes = tuple(block_bytes(group, precision=precision, block_size=block_size) for group in program.kv_groups)
    budget = int(part * max(0, min(int(available_bytes * MEMORY_SHARE), available_bytes - weight_bytes)))
    smaller = "" if precision == "int8" else ", or use int8 KV"

    def blocks_for(tokens_each: int, sequences: int) -> tuple[int, ...]:
        return tuple(
            sequences * _blocks(group, tokens_each, block_size=block_size, max_step_tokens=max_step_tokens)
            for group in program.kv_groups
        )

    def bytes_for(tokens_each: int, sequences: int) -> int:
        return sum(n * size for n, size in zip(blocks_for(tokens_each, sequences), sizes, strict=True))

    fits = _largest(lambda tokens: bytes_for(tokens, 1) <= budget, wanted)
    if fits < wanted and context is not None:
        raise CapacityError(
            f"a context of {wanted} tokens needs {_gb(bytes_for(wanted, 1))} of {precision} KV, "
            f"{_gb(budget)} is allowed ({_part(available_bytes, weight_bytes, part, _gb)}): {fits} tokens fit" + smaller
        )
    if fits < min(wanted, block_size):
        raise CapacityError(
            f"one block of {block_size} tokens needs {sum(sizes)} bytes of {precision} KV, {budget} bytes are allowed "
            f"({_part(available_bytes, weight_bytes, part, str)}){smaller}"
        )
    sequences = _largest(lambda n: bytes_for(fits, n) <= budget, max_sequences)
    spec = KVSpec(precision=precision, block_size=block_size, num_blocks=blocks_for(fits, max(1, sequences)))
    return KVSize(spec=spec, context=fits, block_bytes=sizes)


def token_bytes(program: Program, *, precision: Precision) -> int:
    """Bytes of K and V of one token in every layer."""
    return sum(block_bytes(group, precision=precision, block_size=1) for group in program.kv_groups)


def kv_usage(size: KVSize, groups: tuple[KVGroup, ...], *, num_tokens: int) -> KVUsage:
    """What a sequence with `num_tokens` computed tokens holds: windows keep only what they still see."""
    block_size = size.spec.block_size
    held = []
    for group in groups:
        first = 0 if group.window is None else max(0, num_tokens + 1 - group.window) // block_size
        held.append(-(-num_tokens // block_size) - first)
    return kv_usage_of_beams(size, held=tuple(held), num_tokens=[num_tokens])


def kv_usage_of_beams(size: KVSize, *, held: tuple[int, ...], num_tokens: Seq[int]) -> KVUsage:
    """What sequences with so many computed tokens use of the blocks they hold together, counted per group."""
    block_size = size.spec.block_size
    reserved = sum(held) * block_size
    unused = len(held) * sum(-each % block_size for each in num_tokens)
    total = sum(count * bytes_each for count, bytes_each in zip(held, size.block_bytes, strict=True))
    waste = unused / reserved if reserved else 0.0
    return KVUsage(tokens=max(num_tokens), bytes=total, blocks=sum(held), waste_ratio=waste)


def available_memory_bytes(proc: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory this process may still take: what the kernel calls available, less where a cgroup says less.

    Raises ConfigError where neither can be read.
    """
    limits = []
    if proc.exists():
        fields = dict(line.split(":", 1) for line in proc.read_text().splitlines() if ":" in line)
        limits.append(int(fields["MemAvailable"].split()[0]) * 1024)
    limit, current = cgroup / "memory.max", cgroup / "memory.current"
    if limit.exists() and current.exists() and (text := limit.read_text().strip()) != "max":
        used = int(current.read_text()) - _given_back_bytes(cgroup / "memory.stat")
        limits.append(max(0, int(text) - max(0, used)))
    if not limits:
        raise ConfigError(
            "cannot tell how much memory is free: this system has neither /proc/meminfo nor cgroup limits"
        )
    return min(limits)


def _given_back_bytes(stat: Path) -> int:
    """File cache a cgroup is charged for and gives back when asked: a model just downloaded fills it."""
    if not stat.exists():
        return 0
    fields = dict(line.split() for line in stat.read_text().splitlines())
    return int(fields.get("active_file", 0)) + int(fields.get("inactive_file", 0))


def _blocks(group: KVGroup, tokens: int, *, block_size: int, max_step_tokens: int) -> int:
    """Blocks one sequence of `tokens` can hold at once; a window keeps its keys and those of one step."""
    if group.window is not None:
        tokens = min(tokens, group.window + max_step_tokens + block_size)
    return -(-tokens // block_size) + 1  # one more: a fork's copy or the block a step begins


def _largest(fits: Callable[[int], bool], limit: int) -> int:
    """The largest n in [0, limit] that fits, for a condition that never comes back once lost."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _part(available_bytes: int, weight_bytes: int, part: float, shown: Callable[[int], str]) -> str:
    """What of the memory is allowed, in words."""
    beside = "" if part == 1 else f", of which the draft model's KV takes {1 - part:.0%}"
    if available_bytes - weight_bytes < int(available_bytes * MEMORY_SHARE):
        return f"{shown(available_bytes)} available less {shown(weight_bytes)} of weights{beside}"
    return f"{MEMORY_SHARE:.0%} of {shown(available_bytes)} available{beside}"


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB"
