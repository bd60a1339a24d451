"""Which tokens any row of a step may draw: the head need not read the weights of others. Asked before a step runs.

Grammars alone narrow it, and only where nobody looks at the other logits: log-probabilities, searches and drafts do.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from twostroke.core.step import StepPlan
from twostroke.engine.live import Member

Words = npt.NDArray[np.uint32]  # a bit per vocabulary id


class WantedTokens:
    """Owns the words; those of a step are good until the next one asks."""

    def __init__(self, vocab_size: int) -> None:
        self._words: Words = np.zeros(-(-vocab_size // 32), np.uint32)

    def of(self, plan: StepPlan, members: Mapping[int, Member]) -> Words | None:
        """None: all, or nothing at all, which whoever samples tells better."""
        masks: list[bytes] = []
        for row in plan.rows:
            if row.num_logits:
                mask = _mask_of(members[row.sequence_id]) if row.needs_logits and row.num_logits == 1 else None
                if mask is None:
                    return None
                masks.append(mask)
        words = self._words
        words[:] = 0
        for mask in masks:
            allowed = np.frombuffer(mask, np.uint32)[: len(words)]
            words[: len(allowed)] |= allowed
        return words if words.any() else None

    def share_of(self, words: Words | None) -> float:
        """Of the head that is read."""
        return 1.0 if words is None else np.count_nonzero(words) / len(words)


def _mask_of(member: Member) -> bytes | None:
    """What a row may draw; None where all its logits are wanted, or its grammar gave up, as the sampler will tell."""
    grammar = member.sampling.grammar
    if grammar is None or member.live.chooser is not None or member.live.request.params.logprobs is not None:
        return None
    try:
        return grammar.allowed()
    except ValueError:
        return None
