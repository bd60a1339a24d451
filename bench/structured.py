"""What a structure costs: the mask of a step beside the step itself, one sequence at a time.

    python bench/structured.py [-m MODEL] [--repeat 5]

Greedy answers to several structures; then their tokens are followed by the grammar alone, and every mask is timed.
The target is half of the masks within 5 % of TPOT. Compiling and the vocabulary's first reading are told apart.
"""

import argparse
import json
import time
from statistics import median

from twostroke.llm import LLM
from twostroke.params import SamplingParams
from twostroke.structure import Structure, StructureKind

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 5},
        "note": {"type": "string"},
    },
    "required": ["name", "age", "tags", "note"],
    "additionalProperties": False,
}
STRUCTURES = {
    "json schema": Structure(kind=StructureKind.JSON_SCHEMA, source=json.dumps(PERSON)),
    "json object": Structure(kind=StructureKind.JSON_OBJECT),
    "regex": Structure(kind=StructureKind.REGEX, source="([a-z]{3,9} ){20}end"),
    "lark": Structure(kind=StructureKind.LARK, source='start: item ("," item)*\nitem: /[a-z]+/ "=" /[0-9]{1,5}/'),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="What a structure costs.")
    parser.add_argument("-m", "--model", default="smollm2:135m")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with LLM(options.model) as llm:
        began_s = time.perf_counter()
        llm.prepare_structures()
        print(f"vocabulary of {llm.program.vocab_size}: {(time.perf_counter() - began_s) * 1e3:.0f} ms, once")
        plain_s = median(answer(llm, None)[1] for _ in range(options.repeat))
        print(f"without a structure: TPOT {plain_s * 1e3:.2f} ms")
        for name, structure in STRUCTURES.items():
            runs = [answer(llm, structure) for _ in range(options.repeat)]
            compile_s, masks_s = follow(llm, structure, runs[0][0])
            half_s, tpot_s = median(masks_s), median(run[1] for run in runs)
            print(
                f"{name:12} compile {compile_s * 1e3:6.2f} ms, mask p50 {half_s * 1e6:6.0f} us, "
                f"p99 {sorted(masks_s)[int(len(masks_s) * 0.99)] * 1e6:6.0f} us, TPOT {tpot_s * 1e3:.2f} ms, "
                f"p50 / TPOT {half_s / tpot_s:6.2%}, {len(masks_s)} tokens"
            )


def answer(llm: LLM, structure: Structure | None) -> tuple[tuple[int, ...], float]:
    """Its tokens and its TPOT."""
    messages = [{"role": "user", "content": "Describe a person who paints."}]
    result = llm.chat(messages, SamplingParams(temperature=0, max_tokens=96, structure=structure))
    assert result.timing.tpot_s is not None
    return result.token_ids, result.timing.tpot_s


def follow(llm: LLM, structure: Structure, token_ids: tuple[int, ...]) -> tuple[float, list[float]]:
    began_s = time.perf_counter()
    grammar = llm._grammars.compile(structure)
    compile_s, masks_s = time.perf_counter() - began_s, []
    for token_id in token_ids:
        began_s = time.perf_counter()
        grammar.allowed()
        masks_s.append(time.perf_counter() - began_s)
        grammar.advance(token_id)
    return compile_s, masks_s


if __name__ == "__main__":
    main()
