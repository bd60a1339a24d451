"""Which kernels this machine may run."""

import platform
from pathlib import Path

import pytest

from twostroke import _native

CPUINFO = Path("/proc/cpuinfo")
# Everything the AVX-512 files are compiled for, in the kernel's spelling; it lists only what the system can save.
AVX512_FLAGS = {
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "fma",
    "f16c",
    "avx2",
    "bmi2",
}


def test_portable_kernels_are_always_there_and_come_last() -> None:
    assert _native.usable_isas()[-1] == "portable"
    assert len(set(_native.usable_isas())) == len(_native.usable_isas())


@pytest.mark.skipif(platform.machine() != "x86_64" or not CPUINFO.exists(), reason="compares with Linux's own list")
def test_avx512_is_usable_exactly_where_the_system_reports_all_of_it() -> None:
    line = next(line for line in CPUINFO.read_text().splitlines() if line.startswith("flags"))
    flags = set(line.split(":")[1].split())
    assert ("avx512" in _native.usable_isas()) == (flags >= AVX512_FLAGS)
