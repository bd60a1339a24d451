"""What a structure costs and saves: the mask of a step beside the step itself, one sequence at a time.

    python bench/structured.py [-m MODEL] [--repeat 5]

Greedy answers to several structures, every mask timed where it is made, between two steps that empty the caches. The
target is half of the masks within 5 % of TPOT, also in the first answer, before which nobody asked for its structure.
Compiling and the vocabulary's first reading are told apart. Answers alternate with free ones: a held one takes less
time a token, as the head reads only what may come next. Last a longer answer of lists and choices: with the whole head,
with what may come of it, and with drafts from the text, in turn.
"""

import argparse
import json
import time
from collections.abc import Mapping
from statistics import mean, median
from typing import NamedTuple

from twostroke.core.step import StepPlan
from twostroke.core.strategy import Speculator
from twostroke.engine.live import Member
from twostroke.engine.wanted import WantedTokens, Words
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
RATING = {
    "type": "object",
    "properties": {
        "source": {"enum": ["critics", "audience"]},
        "stars": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["source", "stars"],
    "additionalProperties": False,
}
MOVIE = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 40},
        "year": {"type": "integer", "minimum": 1900, "maximum": 2030},
        "genre": {"enum": ["comedy", "drama", "documentary", "science fiction"]},
        "ratings": {"type": "array", "items": RATING, "minItems": 8, "maxItems": 8},
    },
    "required": ["title", "year", "genre", "ratings"],
    "additionalProperties": False,
}
QUESTION = "Describe a person who paints."
LIKE_THIS = f'{QUESTION} Answer in JSON like {{"name": "Ann", "age": 30, "paintings": ["one", "two"]}}'
STRUCTURES = {
    "json schema": Structure(kind=StructureKind.JSON_SCHEMA, source=json.dumps(PERSON)),
    "json object": Structure(kind=StructureKind.JSON_OBJECT),
    "words": Structure(kind=StructureKind.REGEX, source=r"([A-Za-z]+ ){9,}[A-Za-z]+\."),
    "dates": Structure(kind=StructureKind.REGEX, source=r"Born \d{4}-\d{2}-\d{2}, died \d{4}-\d{2}-\d{2}\."),
    "counts": Structure(kind=StructureKind.REGEX, source="([a-z]{3,9} ){20}end"),
    "lark": Structure(kind=StructureKind.LARK, source='start: item ("," item)*\nitem: /[a-z]+/ "=" /[0-9]{1,5}/'),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="What a structure costs.")
    parser.add_argument("-m", "--model", default="smollm2:135m")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with LLM(options.model, speculate="ngram") as llm:
        drafting = llm._worker.ask(lambda engine: engine.speculator)
        change(llm, speculator=None)
        began_s = time.perf_counter()
        llm.prepare_structures()
        print(f"vocabulary of {llm.program.vocab_size}: {(time.perf_counter() - began_s) * 1e3:.0f} ms, once")
        answer(llm, None)
        for name, structure in STRUCTURES.items():
            pairs = [(answer(llm, None), answer(llm, structure)) for _ in range(options.repeat)]
            compile_s = median(compile_seconds(llm, structure) for _ in range(options.repeat))
            masks_s = sorted(mask_s for _, held in pairs for mask_s in held.masks_s)
            half_s, first_s = median(masks_s), median(pairs[0][1].masks_s)
            tpot_s = median(held.tpot_s for _, held in pairs)
            ratios = sorted(held.tpot_s / free.tpot_s for free, held in pairs)
            print(
                f"{name:12} compile {compile_s * 1e3:5.2f} ms, mask p50 {half_s * 1e6:4.0f} us, "
                f"p99 {masks_s[int(len(masks_s) * 0.99)] * 1e6:5.0f} us, TPOT {tpot_s * 1e3:.2f} ms, "
                f"p50 / TPOT {half_s / tpot_s:6.2%}, of the first answer {first_s / tpot_s:6.2%}, "
                f"{len(pairs[0][1].masks_s)} tokens; head read {pairs[0][1].head_share:4.0%}, "
                f"TPOT / free {median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}]"
            )

        print(ways(llm, drafting, repeat=options.repeat))


class WholeHead(WantedTokens):
    """Wants every token."""

    def of(self, plan: StepPlan, members: Mapping[int, Member]) -> Words | None:
        return None


def ways(llm: LLM, drafting: Speculator | None, *, repeat: int) -> str:
    """One answer by three engines in turn, the first round uncounted; times are of a token."""
    wanted = llm._worker.ask(lambda engine: engine._wanted)
    manners: dict[str, tuple[WantedTokens, Speculator | None]] = {
        "whole head": (WholeHead(llm.program.vocab_size), None),
        "what may come": (wanted, None),
        "and drafts": (wanted, drafting),
    }
    structure = Structure(kind=StructureKind.JSON_SCHEMA, source=json.dumps(MOVIE))
    params = SamplingParams(temperature=0.8, seed=3, max_tokens=300, structure=structure)
    took: dict[str, list[float]] = {name: [] for name in manners}
    texts = set()
    for _ in range(repeat + 1):
        for name, (words, speculator) in manners.items():
            change(llm, _wanted=words, speculator=speculator)
            result = llm.chat([{"role": "user", "content": "Describe a movie as JSON."}], params)
            texts.add(result.text)
            assert result.timing.tpot_s is not None
            took[name].append(result.timing.tpot_s)
    assert len(texts) == 1, "the way changed the answer"
    whole = took["whole head"][1:]
    lines = []
    for name, times in took.items():
        ratios = sorted(first / mine for first, mine in zip(whole, times[1:], strict=True))
        speed = f"{median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}] as fast"
        lines.append(f"  {name:13} {median(times[1:]) * 1e3:.2f} ms a token, {speed}")
    return "\n".join([f"lists and choices, {len(result.token_ids)} tokens, temperature 0.8:", *lines])


def change(llm: LLM, **parts: object) -> None:
    """Give the engine other parts, between two requests."""
    llm._worker.ask(lambda engine: [setattr(engine, name, part) for name, part in parts.items()])


class Answer(NamedTuple):
    """One answer; `masks_s` is of every step, `head_share` the mean over them of what was read of the head."""

    tpot_s: float
    masks_s: tuple[float, ...]
    head_share: float


def answer(llm: LLM, structure: Structure | None) -> Answer:
    is_object = structure is not None and structure.kind is StructureKind.JSON_OBJECT  # left alone it stays empty
    messages = [{"role": "user", "content": LIKE_THIS if is_object else QUESTION}]
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
