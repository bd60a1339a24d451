"""Instructions of an instruction set stay in its own functions: the others run on processors that lack them."""

import platform
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from twostroke import _native

MACHINE = platform.machine()

FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
# What an instruction is made of, and the words one of which must stand in the name of its function.
Needs = dict[re.Pattern[str], tuple[str, ...]]
X86_NEEDS: Needs = {
    re.compile(r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|%k[0-7]"): ("avx512",),
    re.compile(r"^vpdpbusds?\b"): ("avx512", "avxvnni"),
    re.compile(r"^v\w+ .*%[xy]mm"): ("avx512", "avxvnni", "avx2"),
}
ARM_NEEDS: Needs = {
    re.compile(r"^(us|su)dot\b|^(s|u|us)mmla\b"): ("neon_i8mm",),
    re.compile(r"^[su]dot\b"): ("neon",),
}
NEEDS = {"x86_64": X86_NEEDS, "aarch64": ARM_NEEDS}
FOLDERS = {"x86_64": {"portable", "avx2", "avxvnni", "avx512"}, "aarch64": {"portable", "neon", "neon_i8mm"}}


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


def missing_words(machine: str, function: str, instruction: str) -> tuple[str, ...]:
    """The words of which the function's name has none although the instruction needs one."""
    for pattern, words in NEEDS[machine].items():
        if pattern.search(instruction) and not any(word in function for word in words):
            return words
    return ()


@pytest.mark.skipif(MACHINE not in NEEDS or shutil.which("objdump") is None, reason="reads the code with objdump")
def test_no_function_has_instructions_of_an_isa_it_does_not_name() -> None:
    leaks: set[str] = set()
    seen: set[str] = set()
    for function, instruction in disassemble():
        words = missing_words(MACHINE, function, instruction)
        if words:
            leaks.add(f"{function}: {instruction}")
        seen.update(word for word in FOLDERS[MACHINE] if word in function)
    assert seen == FOLDERS[MACHINE], "the extension was stripped of its symbols"
    assert not leaks, sorted(leaks)[:20]


@pytest.mark.parametrize(
    ("machine", "function", "instruction"),
    [
        ("x86_64", "_ZN9twostroke8portable6linearEv", "vaddps %xmm1,%xmm2,%xmm3"),
        ("x86_64", "_ZSt3minIiERKT_S2_S2_", "vpaddd (%rax),%ymm0,%ymm0"),
        ("x86_64", "_ZN9twostroke4avx26linearEv", "vmovups %zmm1,(%rax)"),
        ("x86_64", "_ZN9twostroke4avx26linearEv", "vpaddd %ymm16,%ymm0,%ymm0"),
        ("x86_64", "_ZN9twostroke4avx26linearEv", "vpdpbusd %ymm1,%ymm0,%ymm0"),
        ("x86_64", "_ZN9twostroke7avxvnni6linearEv", "kmovw %k1,%eax"),
        ("aarch64", "_ZSt3minIiERKT_S2_S2_", "sdot v0.4s, v1.16b, v2.4b[0]"),
        ("aarch64", "_ZN9twostroke4neon6linearEv", "usdot v0.4s, v1.16b, v2.4b[0]"),
        ("aarch64", "_ZN9twostroke4neon6linearEv", "usmmla v0.4s, v1.16b, v2.16b"),
    ],
)
def test_a_leak_would_be_found(machine: str, function: str, instruction: str) -> None:
    assert missing_words(machine, function, instruction)


@pytest.mark.parametrize(
    ("machine", "function", "instruction"),
    [
        ("x86_64", "_ZN9twostroke8portable6linearEv", "addps %xmm1,%xmm2"),
        ("x86_64", "_ZN9twostroke4avx26linearEv", "vpaddd %ymm15,%ymm0,%ymm0"),
        ("x86_64", "_ZN9twostroke7avxvnni6linearEv", "vpdpbusd %ymm1,%ymm0,%ymm0"),
        ("x86_64", "_ZN9twostroke6avx5126linearEv", "vmovups %zmm31,(%rax){%k1}"),
        ("aarch64", "_ZN9twostroke8portable6linearEv", "fmla v0.4s, v1.4s, v2.4s"),
        ("aarch64", "_ZN9twostroke4neon6linearEv", "sdot v0.4s, v1.16b, v2.4b[0]"),
        ("aarch64", "_ZN9twostroke9neon_i8mm6linearEv", "usmmla v0.4s, v1.16b, v2.16b"),
    ],
)
def test_what_a_function_names_it_may_use(machine: str, function: str, instruction: str) -> None:
    assert not missing_words(machine, function, instruction)
