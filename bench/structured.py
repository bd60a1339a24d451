"""What a structure costs and saves: the mask of a step beside the step itself, one sequence at a time.

    python bench/structured.py [-m MODEL] [--repeat 5]

Greedy answers to several structures, every mask timed where it is made, between two steps that empty the caches. The
target is half of the masks within 5 % of TPOT. Compiling and the vocabulary's first reading are told apart. Answers
alternate with free ones: a held one takes less time a token, as the head reads only what may come next.
"""

import argparse
import json
import time
from statistics import mean, median
from typing import NamedTuple

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
        answer(llm, None)
        for name, structure in STRUCTURES.items():
            pairs = [(answer(llm, None), answer(llm, structure)) for _ in range(options.repeat)]
            compile_s = median(compile_seconds(llm, structure) for _ in range(options.repeat))
            masks_s = sorted(mask_s for _, held in pairs for mask_s in held.masks_s)
            half_s, tpot_s = median(masks_s), median(held.tpot_s for _, held in pairs)
            ratios = sorted(held.tpot_s / free.tpot_s for free, held in pairs)
            print(
                f"{name:12} compile {compile_s * 1e3:5.2f} ms, mask p50 {half_s * 1e6:4.0f} us, "
                f"p99 {masks_s[int(len(masks_s) * 0.99)] * 1e6:5.0f} us, TPOT {tpot_s * 1e3:.2f} ms, "
                f"p50 / TPOT {half_s / tpot_s:6.2%}, {len(pairs[0][1].masks_s)} tokens; "
                f"head read {pairs[0][1].head_share:4.0%}, "
                f"TPOT / free {median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}]"
            )


class Answer(NamedTuple):
    """One answer; `masks_s` is of every step, `head_share` the mean over them of what was read of the head."""

    tpot_s: float
    masks_s: tuple[float, ...]
    head_share: float


def answer(llm: LLM, structure: Structure | None) -> Answer:
    messages = [{"role": "user", "content": "Describe a person who paints."}]
    result = llm.chat(messages, SamplingParams(temperature=0, max_tokens=96, structure=structure))
    assert result.timing.tpot_s is not None
    steps = [record for record, absent in result.account.steps if absent is None]
    return Answer(result.timing.tpot_s, tuple(step.mask_s for step in steps), mean(step.head_share for step in steps))


def compile_seconds(llm: LLM, structure: Structure) -> float:
    began_s = time.perf_counter()
    llm._grammars.compile(structure)
    return time.perf_counter() - began_s


if __name__ == "__main__":
    main()
