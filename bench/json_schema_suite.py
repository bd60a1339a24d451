"""The public JSON Schema Test Suite against the grammars of answers.

    python bench/json_schema_suite.py PATH/TO/JSON-Schema-Test-Suite/tests/draft2020-12

For every keyword's file: how many schemas are refused (an error, never an unconstrained answer), and of the others how
many valid and invalid instances a grammar lets pass. An invalid one that passes is a fault. A valid one that does not
is a narrower language than the schema's: properties come in the schema's order, numbers in one spelling.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from twostroke.errors import ParamsError
from twostroke.sample.grammar import Grammar, GrammarCompiler, Words
from twostroke.structure import Structure, StructureKind

END = 256


def make_compiler() -> GrammarCompiler:
    """A vocabulary of bytes: no token border can hide anything."""
    tokens = [*(bytes([byte]) for byte in range(256)), b"<end>"]
    return GrammarCompiler(Words(tokens, control_ids=[END], end_ids=[END], encode=lambda text: list(text.encode())))


def allows(mask: bytes, token_id: int) -> bool:
    return bool(mask[token_id // 8] >> token_id % 8 & 1)


def passes(grammar: Grammar, text: str) -> bool:
    """Whether the whole text can be said and ended."""
    for byte in text.encode():
        if not allows(grammar.allowed(), byte):
            return False
        grammar.advance(byte)
    return allows(grammar.allowed(), END)


def count_file(compiler: GrammarCompiler, cases: list[dict[str, Any]], faults: list[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for case in cases:
        structure = Structure(kind=StructureKind.JSON_SCHEMA, source=json.dumps(case["schema"], ensure_ascii=False))
        try:
            compiler.compile(structure)
        except ParamsError:
            counts["refused"] += 1
            continue
        counts["compiled"] += 1
        for test in case["tests"]:
            passed = passes(compiler.compile(structure), json.dumps(test["data"], ensure_ascii=False))
            kind = "valid" if test["valid"] else "invalid"
            counts[kind] += 1
            counts[f"{kind} passed"] += passed
            if passed and not test["valid"]:
                faults.append(
                    f"{case['description']}: {json.dumps(case['schema'])[:160]} <- {json.dumps(test['data'])}"
                )
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description="The JSON Schema Test Suite against grammars of answers.")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    compiler, total, faults = make_compiler(), Counter[str](), list[str]()
    columns = ("compiled", "refused", "valid", "valid passed", "invalid", "invalid passed")
    print(f"{'file':26}" + "".join(f"{name:>16}" for name in columns))
    for file in sorted(options.folder.glob("*.json")):
        counts = count_file(compiler, json.loads(file.read_text(encoding="utf-8")), faults)
        total += counts
        print(f"{file.stem:26}" + "".join(f"{counts[name]:16}" for name in columns))
    print(f"{'all':26}" + "".join(f"{total[name]:16}" for name in columns))
    for fault in faults:
        print(f"fault: {fault}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
