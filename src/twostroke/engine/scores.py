"""From logits of a prompt's rows to the log-probabilities of its tokens, where a request asked for them.

The rows of a chunk are reduced in the step that computed them: logits are never kept. Called by the engine's step.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from twostroke.core.step import SampledToken, StepPlan
from twostroke.engine.live import Member
from twostroke.engine.output_stream import OutputStream
from twostroke.sample.sampler import NO_TOKEN, Sampler


def score_prompts(
    sampler: Sampler, logits: npt.NDArray[np.float32], plan: StepPlan, members: Mapping[int, Member]
) -> list[SampledToken]:
    """Hand every scored row its log-probabilities; what comes back are rows that failed. `logits` are the plan's."""
    failures = []
    start = 0
    for row in plan.rows:
        if row.num_scored:
            live = members[row.sequence_id].live
            assert isinstance(live.stream, OutputStream), f"{live.request.request_id} is a search and has no scores"
            end = row.start_pos + row.num_tokens + 1 - int(row.needs_logits)  # behind the last token that is scored
            token_ids = live.request.prompt_token_ids[end - row.num_scored : end]
            num_best = live.request.params.prompt_logprobs or 0
            try:
                scores = sampler.score(logits[start : start + row.num_scored], token_ids, num_best=num_best)
                live.stream.take_scores(scores)
            except ValueError as error:
                failures.append(SampledToken(row.sequence_id, NO_TOKEN, error=str(error)))
        start += row.num_logits
    return failures
