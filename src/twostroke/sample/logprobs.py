"""Log-probabilities to report: the model's own, before penalties, temperature and filters."""

import numpy as np
from numpy.typing import NDArray

from twostroke.core.step import TokenLogprob
from twostroke.sample.filters import keep_top_k


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Natural log-softmax of `logits` [vocab], summed in float64 so that 10^5 small terms are not lost."""
    shifted = logits.astype(np.float64) - float(logits.max())
    with np.errstate(over="ignore"):  # a gap wider than float32 holds is -inf
        return np.asarray(shifted - np.log(np.exp(shifted).sum()), dtype=np.float32)


def best_logprobs(logprobs: NDArray[np.float32], num_best: int) -> tuple[TokenLogprob, ...]:
    """The best by (logprob descending, id ascending). Impossible tokens are left out: -inf is not JSON."""
    if num_best == 0:
        return ()
    kept = keep_top_k(logprobs - logprobs.max(), num_best)
    order = kept[np.argsort(-logprobs[kept], kind="stable")]
    return tuple(TokenLogprob(int(i), float(logprobs[i])) for i in order if np.isfinite(logprobs[i]))
