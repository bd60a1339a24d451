"""Which kernels this machine may run."""

import platform
from pathlib import Path

import pytest

from twostroke import _native

CPUINFO = Path("/proc/cpuinfo")
LISTS = {"x86_64": "flags", "aarch64": "Features"}  # how a line begins that names what this machine has
# Everything a folder is compiled for, in the kernel's spelling; it lists only what the system can save.
AVX2_FLAGS = {"fma", "f16c", "avx2", "bmi2"}
X86_FLAGS = {
    "avx512": AVX2_FLAGS | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16"},
    "avxvnni": AVX2_FLAGS | {"avx_vnni"},
    "avx2": AVX2_FLAGS,
}
ARM_FLAGS = {"neon_i8mm": {"asimddp", "i8mm"}, "neon": {"asimddp"}}
FLAGS = {"x86_64": X86_FLAGS, "aarch64": ARM_FLAGS}.get(platform.machine(), {})


def reported_flags() -> set[str] | None:
    """What Linux says this processor has; None where it says nothing, as under emulation."""
    lines = CPUINFO.read_text().splitlines() if CPUINFO.exists() else []
    name = LISTS.get(platform.machine(), "nothing")
    return next((set(line.split(":")[1].split()) for line in lines if line.startswith(name)), None)


def test_portable_kernels_are_always_there_and_come_last() -> None:
    assert _native.usable_isas()[-1] == "portable"


def test_isas_come_the_fastest_first() -> None:
    usable = _native.usable_isas()
    assert usable == [isa for isa in (*FLAGS, "portable") if isa in usable]


@pytest.mark.parametrize("isa", FLAGS)
def test_an_isa_is_usable_exactly_where_the_system_reports_all_of_it(isa: str) -> None:
    flags = reported_flags()
    if flags is None:
        pytest.skip("compares with Linux's own list")
    assert (isa in _native.usable_isas()) == (flags >= FLAGS[isa])
