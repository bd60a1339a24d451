"""Log-probabilities to report: the model's own, before penalties, temperature and filters. The definition in NumPy."""

import numpy as np

from twostroke.core.step import TokenLogprob
from twostroke.sample.arithmetic import UNITS_PER_WEIGHT, Floats, log_of, units_of


def log_softmax(logits: Floats) -> Floats:
    """Natural log-softmax of `logits` [vocab]; the mass is summed in whole units, so 10^6 small terms are not lost."""
    best = logits.max()
    with np.errstate(over="ignore"):  # a gap wider than float32 holds is -inf
        mass = units_of(logits - best).sum() / float(UNITS_PER_WEIGHT)
        shifted = logits.astype(np.float64) - float(best)
        return np.asarray(shifted - log_of(np.array([mass])), dtype=np.float32)


def best_logprobs(logits: Floats, num_best: int) -> tuple[TokenLogprob, ...]:
    """The best by (logit descending, id ascending). Impossible tokens are left out: -inf is not JSON."""
    logprobs = log_softmax(logits)
    ranking = np.argsort(-logits, kind="stable")[:num_best]
    return tuple(TokenLogprob(int(i), float(logprobs[i])) for i in ranking if np.isfinite(logprobs[i]))
