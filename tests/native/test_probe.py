"""Probes do the work they say they did: all threads, every round, the whole buffer."""

import pytest

from twostroke import _native

ISAS = _native.usable_isas()
UNITS = ("int8", "bf16", "fp32")
EVERY_ISA = pytest.mark.parametrize("isa", ISAS)
# Operations of one multiply-add instruction, two per element: what a round's count must be made of.
PER_INSTRUCTION = {
    ("avx512", "int8"): 128,
    ("avx512", "bf16"): 64,
    ("avx512", "fp32"): 32,
    ("avxvnni", "int8"): 64,
    ("avx2", "fp32"): 16,
    ("portable", "int8"): 2,
    ("portable", "bf16"): 2,
    ("portable", "fp32"): 2,
}


@EVERY_ISA
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_operations_are_rounds_times_threads(isa: str, unit: str, threads: int) -> None:
    one = _native.Probe(isa, 1, 0).compute(unit, 1)
    probe = _native.Probe(isa, threads, 0)
    assert one > 0
    assert [probe.compute(unit, rounds) for rounds in (0, 1, 2, 1000)] == [
        one * rounds * threads for rounds in (0, 1, 2, 1000)
    ]


@pytest.mark.parametrize(("isa", "unit"), PER_INSTRUCTION)
def test_a_round_is_a_whole_number_of_instructions(isa: str, unit: str) -> None:
    if isa not in ISAS:
        pytest.skip(f"this machine has no {isa}")
    assert _native.Probe(isa, 1, 0).compute(unit, 1) % PER_INSTRUCTION[isa, unit] == 0


@EVERY_ISA
def test_int8_does_at_least_as_much_per_round_as_fp32(isa: str) -> None:
    probe = _native.Probe(isa, 1, 0)
    int8, bf16, fp32 = (probe.compute(unit, 3) for unit in UNITS)
    assert int8 >= bf16 >= fp32


@EVERY_ISA
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("num_bytes", [0, 1, 511, 512, 513, 1535, 1536, 4096, 100_000])
def test_bytes_read_are_whole_lines_of_equal_shares(isa: str, threads: int, num_bytes: int) -> None:
    got = _native.Probe(isa, threads, num_bytes).read()
    assert got % (512 * threads) == 0
    assert num_bytes - 512 * threads < got <= num_bytes


@EVERY_ISA
def test_a_probe_can_be_asked_again_and_in_any_order(isa: str) -> None:
    probe = _native.Probe(isa, 2, 8192)
    first = [probe.read(), probe.compute("fp32", 5), probe.compute("int8", 5)]
    again = [probe.compute("int8", 5), probe.compute("fp32", 5), probe.read()]
    assert again == first[::-1]


def test_what_no_probe_knows_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="cannot run probes for ISA mmx"):
        _native.Probe("mmx", 1, 0)
    probe = _native.Probe("portable", 1, 512)
    for unit in ("fp64", "", "INT8"):
        with pytest.raises(ValueError, match=f"no unit {unit}"):
            probe.compute(unit, 1)
    assert probe.read() == 512
    with pytest.raises(ValueError, match="at least one thread"):
        _native.Probe("portable", 0, 0)
