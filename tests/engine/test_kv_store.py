"""KV sizing arithmetic."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from twostroke.engine.kv_store import KVSize, available_memory_bytes, block_bytes, kv_usage, plan_kv
from twostroke.errors import CapacityError, ConfigError
from twostroke.program.program import KVGroup, Program
from twostroke.program.reader import KVSpec

FULL = KVGroup(id=0, layers=(0, 1, 2), num_kv_heads=2, head_dim=24, window=None)
WINDOW = KVGroup(id=1, layers=(3,), num_kv_heads=2, head_dim=24, window=8)
TOKEN_BYTES = 2 * 3 * 2 * 24 * 2  # K and V, layers, heads, head_dim, bf16


def program(*groups: KVGroup, context_length: int = 1024) -> Program:
    return Program(
        architecture="llama",
        values=(),
        instrs=(),
        weights={},
        rope_tables=(),
        kv_groups=groups,
        width=48,
        vocab_size=10,
        context_length=context_length,
    )


def size(
    *groups: KVGroup,
    context: int | None = None,
    available_bytes: int = 10**9,
    max_sequences: int = 4,
    weight_bytes: int = 0,
) -> KVSize:
    return plan_kv(
        program(*groups),
        precision="bf16",
        block_size=16,
        context=context,
        max_sequences=max_sequences,
        max_step_tokens=32,
        available_bytes=available_bytes,
        weight_bytes=weight_bytes,
    )


def test_a_block_holds_k_and_v_of_every_layer_and_head_by_the_explicit_head_dim() -> None:
    assert block_bytes(FULL, precision="bf16", block_size=16) == 16 * TOKEN_BYTES
    assert block_bytes(FULL, precision="f32", block_size=16) == 32 * TOKEN_BYTES


def test_plenty_of_memory_serves_whole_contexts_for_every_sequence() -> None:
    made = size(FULL)
    assert made.context == 1024
    assert made.spec.num_blocks == (4 * (1024 // 16 + 1),)


def test_little_memory_shortens_the_default_context_and_never_passes_the_share() -> None:
    made = size(FULL, available_bytes=2 * 300 * TOKEN_BYTES)
    assert 0 < made.context < 1024
    assert made.total_bytes <= 300 * TOKEN_BYTES


def test_a_stated_context_that_does_not_fit_says_what_does() -> None:
    with pytest.raises(CapacityError, match=r"1000 tokens needs .* 272 tokens fit"):
        size(FULL, context=1000, available_bytes=2 * 300 * TOKEN_BYTES)


@pytest.mark.parametrize("context", [0, -1, 1025])
def test_a_context_outside_the_model_is_refused(context: int) -> None:
    with pytest.raises(ConfigError, match="1 to 1024"):
        size(FULL, context=context)


def test_not_even_one_block_is_refused() -> None:
    with pytest.raises(CapacityError, match="16 tokens"):
        size(FULL, available_bytes=1000)


def test_a_window_group_keeps_its_window_and_one_step() -> None:
    made = size(FULL, WINDOW, max_sequences=1)
    assert made.spec.num_blocks[1] == -(-(8 + 32 + 16) // 16) + 1


@given(st.integers(1, 2000), st.integers(1, 8))
def test_the_suggested_context_is_the_largest_that_fits(available_kib: int, sequences: int) -> None:
    available = available_kib * 1024
    try:
        made = size(FULL, available_bytes=available, max_sequences=sequences)
    except CapacityError:
        return
    assert made.total_bytes <= available // 2
    if made.context < 1024:
        with pytest.raises(CapacityError):
            size(FULL, context=made.context + 1, available_bytes=available)


def test_what_the_weights_will_take_is_not_promised_to_the_kv() -> None:
    available = 1000 * TOKEN_BYTES
    assert size(FULL, available_bytes=available, weight_bytes=500 * TOKEN_BYTES) == size(
        FULL, available_bytes=available
    )
    made = size(FULL, available_bytes=available, weight_bytes=800 * TOKEN_BYTES)
    assert made.total_bytes <= 200 * TOKEN_BYTES
    with pytest.raises(CapacityError, match=r"\(1\.00 GB available less 1\.00 GB of weights\)"):
        size(FULL, context=1024, available_bytes=1_000_100_000, weight_bytes=1_000_000_000)
    with pytest.raises(CapacityError, match=r"0 bytes are allowed \(100 available less 200 of weights\)"):
        size(FULL, available_bytes=100, weight_bytes=200)


def test_usage_counts_partial_blocks_as_waste() -> None:
    spec = KVSpec(precision="bf16", block_size=16, num_blocks=(10,))
    usage = kv_usage(KVSize(spec=spec, context=160, block_bytes=(1600,)), (FULL,), num_tokens=20)
    assert (usage.tokens, usage.blocks, usage.bytes) == (20, 2, 3200)
    assert usage.waste_ratio == pytest.approx(12 / 32)


def test_usage_of_a_window_is_what_the_next_token_sees() -> None:
    spec = KVSpec(precision="bf16", block_size=16, num_blocks=(10,))
    usage = kv_usage(KVSize(spec=spec, context=160, block_bytes=(1600,)), (WINDOW,), num_tokens=100)
    assert usage.blocks == 2  # positions 93 to 99 lie in blocks 5 and 6


def test_nothing_computed_uses_nothing() -> None:
    spec = KVSpec(precision="bf16", block_size=16, num_blocks=(10,))
    usage = kv_usage(KVSize(spec=spec, context=160, block_bytes=(1600,)), (FULL,), num_tokens=0)
    assert (usage.blocks, usage.bytes, usage.waste_ratio) == (0, 0, 0.0)


def test_available_memory_is_the_smaller_of_kernel_and_cgroup(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       2000 kB\nMemAvailable:   1000 kB\n")
    assert available_memory_bytes(meminfo, tmp_path) == 1000 * 1024
    (tmp_path / "memory.current").write_text("100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory_bytes(meminfo, tmp_path) == 1000 * 1024
    (tmp_path / "memory.max").write_text("300000\n")
    assert available_memory_bytes(meminfo, tmp_path) == 200_000


def test_file_cache_of_a_cgroup_is_not_memory_in_use(tmp_path: Path) -> None:
    for name, text in (("memory.max", "300000"), ("memory.current", "290000")):
        (tmp_path / name).write_text(f"{text}\n")
    (tmp_path / "memory.stat").write_text("anon 20000\ninactive_file 200000\nactive_file 50000\n")
    assert available_memory_bytes(tmp_path / "none", tmp_path) == 300_000 - 40_000
    (tmp_path / "memory.stat").write_text("inactive_file 295000\n")  # read a moment later than the sum
    assert available_memory_bytes(tmp_path / "none", tmp_path) == 300_000


def test_unknown_memory_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither /proc/meminfo nor cgroup limits"):
        available_memory_bytes(tmp_path / "none", tmp_path)


@pytest.mark.parametrize("context", [1, 2, 15, 16])
def test_a_context_below_one_block_is_served(context: int) -> None:
    assert size(FULL, context=context).context == context
