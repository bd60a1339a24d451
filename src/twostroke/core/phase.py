"""The two phases of generation, a label on every row; the arithmetic never asks for it."""

from enum import StrEnum


class Phase(StrEnum):
    """Prefill reads known tokens; decode computes the newest verified token and nothing else."""

    PREFILL = "prefill"
    DECODE = "decode"


def phase_of(*, num_computed: int, num_prompt_tokens: int, num_new_tokens: int, num_draft_tokens: int = 0) -> Phase:
    """Label a row of `num_new_tokens` tokens that starts at `num_computed`.

    Decode iff the prompt is computed and only the newest verified token is missing (drafts ride
    along); recompute after preemption is prefill, as its row has more than one verified token.
    """
    verified = num_new_tokens - num_draft_tokens
    if num_computed >= num_prompt_tokens and verified == 1:
        return Phase.DECODE
    return Phase.PREFILL
