"""Which tokens any row of a step may draw: the head need not read the weights of others. Asked before a step runs.

Grammars alone narrow it, and only where nobody looks at the other logits: log-probabilities and searches do. Where a
row has drafts, what may come behind each of them is wanted too.
"""

from collections.abc import Mapping, Sequence

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
                of_row = None if row.num_scored else _masks_of(members[row.sequence_id], row.draft_token_ids)
                if of_row is None:
                    return None
                masks += of_row
        words = self._words
        words[:] = 0
        for mask in masks:
            allowed = np.frombuffer(mask, np.uint32)[: len(words)]
            words[: len(allowed)] |= allowed
        return words if words.any() else None

    def share_of(self, words: Words | None) -> float:
        """Of the head that is read."""
        return 1.0 if words is None else np.count_nonzero(words) / len(words)


def _masks_of(member: Member, draft_token_ids: Sequence[int]) -> list[bytes] | None:
    """What a row may draw now and behind its drafts; None where all its logits are wanted.

    None also where its grammar gave up, as the sampler will tell. A draft that may not come is none that is drawn.
    """
    grammar = member.sampling.grammar
    if grammar is None or member.live.chooser is not None or member.live.request.params.logprobs is not None:
        return None
    try:
        masks = [grammar.allowed()]
        for token_id in draft_token_ids:
            if not _allows(masks[-1], token_id):
                break
            grammar = grammar.behind(token_id)
            masks.append(grammar.allowed())
    except ValueError:
        return None
    return masks


def _allows(mask: bytes, token_id: int) -> bool:
    return token_id // 8 < len(mask) and bool(mask[token_id // 8] >> token_id % 8 & 1)
