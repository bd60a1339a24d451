"""The likeliest tokens a grammar allows, for beams that follow one: raw log-probabilities, as of the whole vocabulary.

`Sampler.sample` calls it for rows whose next token somebody else chooses. What is masked out is left out; nothing is
renormalised, as the transformers library's processors have it.
"""

import numpy as np
from numpy.typing import NDArray

from twostroke.core.step import TokenLogprob


def rank_allowed(
    logits: NDArray[np.float32], mask: NDArray[np.uint32], *, best: TokenLogprob, num_ranked: int
) -> tuple[TokenLogprob, ...]:
    """At most `num_ranked` by (logit descending, id ascending) of `logits` [vocab_size]; a bit of `mask` allows an id.

    `best` is the likeliest token of all: the distance of logits from its own is that of log-probabilities.
    """
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little", count=len(logits))
    ids = np.flatnonzero(bits & np.isfinite(logits))
    values = logits[ids]
    if len(ids) > num_ranked:
        is_kept = values >= np.partition(values, -num_ranked)[-num_ranked]
        ids, values = ids[is_kept], values[is_kept]
    order = np.argsort(-values, kind="stable")[:num_ranked]
    shift = best.logprob - float(logits[best.token_id])
    logprobs = (values.astype(np.float64) + shift).astype(np.float32)
    return tuple([TokenLogprob(int(ids[place]), float(logprobs[place])) for place in order])
