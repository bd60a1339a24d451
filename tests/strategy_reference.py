"""Beam search once more, as plain as it can be: whole sequences, no groups, no candidates cut short."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twostroke.params import BeamSearch

Law = Callable[[Sequence[int]], npt.NDArray[np.float32]]  # context -> logits


class Answer(NamedTuple):
    token_ids: tuple[int, ...]
    score: float


def log_probabilities(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    wide = logits.astype(np.float64)
    wide -= wide.max()
    return np.asarray(wide - math.log(np.exp(wide).sum()))


def beam_search(
    law: Law, prompt: Sequence[int], *, beam: BeamSearch, stop_token_ids: frozenset[int], max_tokens: int
) -> list[Answer]:
    """Every answer that was kept, best first; `num_return` of them are what a user sees."""
    width, penalty = beam.width, beam.length_penalty
    running: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[Answer] = []
    for length in range(1, max_tokens + 1):
        grown = []
        for total, tokens in running:
            for token_id, logprob in enumerate(log_probabilities(law([*prompt, *tokens]))):
                grown.append((total + float(logprob), (*tokens, token_id)))
        grown.sort(key=lambda each: -each[0])
        kept = grown[: max(2, 1 + len(stop_token_ids)) * width]

        def ends(tokens: tuple[int, ...], length: int = length) -> bool:
            return tokens[-1] in stop_token_ids or length == max_tokens

        finished += [Answer(tokens, total / length**penalty) for total, tokens in kept[:width] if ends(tokens)]
        finished = sorted(finished, key=lambda answer: -answer.score)[:width]
        running = [each for each in kept if not ends(each[1])][:width]
        if not running:
            break
        if len(finished) == width:
            reach = max_tokens if beam.early_stopping == "never" and penalty > 0 else length
            if beam.early_stopping is True or width == 1 or running[0][0] / reach**penalty <= finished[-1].score:
                break
    return finished
