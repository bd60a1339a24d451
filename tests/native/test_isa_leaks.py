"""Instructions of an instruction set stay in its own functions: the others run on processors that lack them."""

import platform
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from twostroke import _native

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("objdump") is None, reason="reads x86 code with objdump"
)

FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
# What an instruction is made of, and the words one of which must stand in the name of its function.
NEEDS = {
    re.compile(r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|%k[0-7]"): ("avx512",),
    re.compile(r"^vpdpbusds?\b"): ("avx512", "avxvnni"),
    re.compile(r"^v\w+ .*%[xy]mm"): ("avx512", "avxvnni", "avx2"),
}


def disassemble() -> Iterator[tuple[str, str]]:
    """(mangled name of the function, instruction) of the whole extension."""
    command = ["objdump", "--disassemble", "--no-show-raw-insn", "--wide", _native.__file__]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    function = ""
    for line in listing.splitlines():
        if found := FUNCTION.match(line):
            function = found[1]
        elif "\t" in line:
            yield function, " ".join(line.split("\t", 1)[1].split())


def missing_words(function: str, instruction: str) -> tuple[str, ...]:
    """The words of which the function's name has none although the instruction needs one."""
    for pattern, words in NEEDS.items():
        if pattern.search(instruction) and not any(word in function for word in words):
            return words
    return ()


def test_no_function_has_instructions_of_an_isa_it_does_not_name() -> None:
    leaks: set[str] = set()
    seen: set[str] = set()
    for function, instruction in disassemble():
        words = missing_words(function, instruction)
        if words:
            leaks.add(f"{function}: {instruction}")
        seen.update(word for word in ("portable", "avx2", "avxvnni", "avx512") if word in function)
    assert seen == {"portable", "avx2", "avxvnni", "avx512"}, "the extension was stripped of its symbols"
    assert not leaks, sorted(leaks)[:20]


@pytest.mark.parametrize(
    ("function", "instruction"),
    [
        ("_ZN9twostroke8portable6linearEv", "vaddps %xmm1,%xmm2,%xmm3"),
        ("_ZSt3minIiERKT_S2_S2_", "vpaddd (%rax),%ymm0,%ymm0"),
        ("_ZN9twostroke4avx26linearEv", "vmovups %zmm1,(%rax)"),
        ("_ZN9twostroke4avx26linearEv", "vpaddd %ymm16,%ymm0,%ymm0"),
        ("_ZN9twostroke4avx26linearEv", "vpdpbusd %ymm1,%ymm0,%ymm0"),
        ("_ZN9twostroke7avxvnni6linearEv", "kmovw %k1,%eax"),
    ],
)
def test_a_leak_would_be_found(function: str, instruction: str) -> None:
    assert missing_words(function, instruction)


@pytest.mark.parametrize(
    ("function", "instruction"),
    [
        ("_ZN9twostroke8portable6linearEv", "addps %xmm1,%xmm2"),
        ("_ZN9twostroke4avx26linearEv", "vpaddd %ymm15,%ymm0,%ymm0"),
        ("_ZN9twostroke7avxvnni6linearEv", "vpdpbusd %ymm1,%ymm0,%ymm0"),
        ("_ZN9twostroke6avx5126linearEv", "vmovups %zmm31,(%rax){%k1}"),
    ],
)
def test_what_a_function_names_it_may_use(function: str, instruction: str) -> None:
    assert not missing_words(function, instruction)
