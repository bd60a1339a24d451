"""Which kernels this machine may run."""

import platform
from pathlib import Path

import pytest

from twostroke import _native

CPUINFO = Path("/proc/cpuinfo")
# Everything a folder is compiled for, in the kernel's spelling; it lists only what the system can save.
AVX2_FLAGS = {"fma", "f16c", "avx2", "bmi2"}
FLAGS = {
    "avx512": AVX2_FLAGS | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16"},
    "avxvnni": AVX2_FLAGS | {"avx_vnni"},
    "avx2": AVX2_FLAGS,
}


def test_portable_kernels_are_always_there_and_come_last() -> None:
    assert _native.usable_isas()[-1] == "portable"


def test_isas_come_the_fastest_first() -> None:
    usable = _native.usable_isas()
    assert usable == [isa for isa in (*FLAGS, "portable") if isa in usable]


@pytest.mark.skipif(platform.machine() != "x86_64" or not CPUINFO.exists(), reason="compares with Linux's own list")
@pytest.mark.parametrize("isa", FLAGS)
def test_an_isa_is_usable_exactly_where_the_system_reports_all_of_it(isa: str) -> None:
    line = next(line for line in CPUINFO.read_text().splitlines() if line.startswith("flags"))
    flags = set(line.split(":")[1].split())
    assert (isa in _native.usable_isas()) == (flags >= FLAGS[isa])
