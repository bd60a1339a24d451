"""The table of known bugs names tests that exist, and misses no case of its sections."""

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
CASES = [
    *(f"L{number}" for number in (1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16)),
    *(f"T{number}" for number in (2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14)),
    *(f"C{number}" for number in (1, 2, 4, 5, 6, 8, 9, 10)),
    *(f"U{number}" for number in range(1, 7)),
    *(f"S{number}" for number in (1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13)),
    *(f"X{number}" for number in (1, 2, 3, 5, 6, 7, 8, 9, 10, 11)),
    *(f"B{number}" for number in (1, 3, 4, 5, 6, 7, 8)),
    *(f"K{number}" for number in (1, 3, 4, 5, 6, 7, 8, 9)),
    *(f"P{number}" for number in (1, 2, 3, 5, 7, 8)),
    *(f"R{number}" for number in (1, 2, 4, 5, 6, 7, 9, 10, 11)),
    *(f"J{number}" for number in (1, 3, 4, 5, 6, 7, 9, 10)),
    *(f"H{number}" for number in (1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13)),
    *(f"M{number}" for number in (1, 2, 3, 5, 6, 7, 8)),
]


def table() -> dict[str, list[str]]:
    rows = re.findall(r"^\| ([A-Z]\d+) \| [^|]+ \| ([^|]+) \|$", (TESTS / "known_bugs.md").read_text(), re.MULTILINE)
    return {case: tests.strip().split(", ") for case, tests in rows}


@cache
def functions_of(file: Path) -> set[str]:
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_case_of_the_sections_is_in_the_table() -> None:
    assert list(table()) == CASES


def test_every_entry_is_a_test_that_exists() -> None:
    for case, entries in table().items():
        for entry in entries:
            file, _, name = entry.partition("::")
            assert name in functions_of(TESTS / file), f"{case}: {entry}"
