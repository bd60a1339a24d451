"""What changes logits before anything is drawn: bans, biases, penalties on tokens that were already there.

Pure functions, in the order they apply; the definition the native sampler is held to.
"""

from collections.abc import Sequence

import numpy as np

from twostroke.params import SamplingParams
from twostroke.sample.arithmetic import Floats
from twostroke.sample.filters import Places

_LARGEST = float(np.finfo(np.float32).max)


def without(logits: Floats, banned: Places | None) -> Floats:
    """A copy of `logits` [vocab] in which the `banned` ids are impossible; ids beyond the row mean nothing."""
    result = logits.copy()
    if banned is not None:
        result[banned[banned < len(logits)]] = -np.inf
    return result


def biased(logits: Floats, logit_bias: Sequence[tuple[int, float]]) -> Floats:
    """A copy of `logits` [vocab] with biases added in float32; what is impossible or broken stays so."""
    result = logits.copy()
    for token_id, bias in logit_bias:
        if token_id < len(logits) and np.isfinite(logits[token_id]):
            with np.errstate(over="ignore"):
                result[token_id] = np.clip(logits[token_id] + np.float32(bias), -_LARGEST, _LARGEST)
    return result


def penalised(logits: Floats, prompt: Sequence[int], output: Sequence[int], *, params: SamplingParams) -> Floats:
    """A copy of `logits` [vocab] with the penalties of `params`.

    Repetition (Keskar et al. 2019): positive logits of tokens seen in prompt or answer are divided,
    negative ones multiplied. Then OpenAI's: less frequency x count, less presence once, answer only. Of both, the
    `penalty_last_n` newest tokens are looked at.
    """
    result = logits.copy()
    prompt, output = _newest(prompt, output, params.penalty_last_n)
    in_prompt = prompt if params.repetition_penalty != 1.0 else ()
    seen = np.array([token_id for token_id in sorted({*in_prompt, *output}) if token_id < len(logits)], dtype=np.intp)
    counts = np.bincount(np.array(output, dtype=np.intp), minlength=len(logits))[seen]
    before = logits[seen].astype(np.float64)
    with np.errstate(over="ignore"):
        after = np.where(before < 0, before * params.repetition_penalty, before / params.repetition_penalty)
    after -= params.frequency_penalty * counts + params.presence_penalty * (counts > 0)
    after = np.clip(after, -_LARGEST, _LARGEST)  # a huge penalty must not look like a ban or a broken logit
    result[seen] = np.where(np.isfinite(before), after, before)
    return result


def _newest(prompt: Sequence[int], output: Sequence[int], last_n: int) -> tuple[Sequence[int], Sequence[int]]:
    """What the newest `last_n` tokens have of prompt and answer; -1 is all."""
    num_left_out = 0 if last_n < 0 else max(0, len(prompt) + len(output) - last_n)
    return prompt[num_left_out:], output[max(0, num_left_out - len(prompt)) :]
