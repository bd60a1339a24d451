"""Noise that belongs to a token, not to a moment: Philox4x32-10 (Salmon et al., SC'11, section 3.3).

The noise of a token depends on the seed, the choice, the position and the token's id alone, so neither
the batch nor the order of rows nor the other surviving tokens can change a draw.

    key     = seed, 64 bits
    counter = | choice index | position | token id // 4 | purpose |     one word of 32 bits each
    word    = output word (token id % 4) of that counter

Four neighbouring ids share a counter because one call of Philox makes four independent words. This is the
definition; the native sampler makes the same words and the same noise, bit for bit.
"""

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from twostroke.sample.arithmetic import Doubles, log_of

Words = NDArray[np.uint64]  # 32-bit words in 64-bit cells, so that a product of two fits

_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], dtype=np.uint64)
_WEYL = np.array([[0x9E3779B9], [0xBB67AE85]], dtype=np.uint64)  # what a round adds to the key
_NUM_ROUNDS = 10
_WORD_BITS = np.uint64(32)
_WORD_MASK = np.uint64(0xFFFFFFFF)


class Purpose(IntEnum):
    """Keeps draws of different use apart; part of the counter."""

    SAMPLE = 0
    XTC = 1  # one word per position, that of token id 0


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """Names the noise of one token to come; the token id completes it."""

    seed: int
    choice_index: int
    position: int
    purpose: Purpose = Purpose.SAMPLE


def philox4x32(counter: Words, key: Words) -> Words:
    """Four output words [4, n] of counters [4, n] under keys [2, n] or [2, 1]."""
    even, odd = counter[0::2], counter[1::2]  # words 0 and 2 are multiplied, words 1 and 3 mixed in
    for index in range(_NUM_ROUNDS):
        product = even * _MULTIPLIERS
        round_key = (key + _WEYL * np.uint64(index)) & _WORD_MASK
        even, odd = (product >> _WORD_BITS)[::-1] ^ odd ^ round_key, (product & _WORD_MASK)[::-1]
    output = np.empty_like(counter)
    output[0::2] = even
    output[1::2] = odd
    return output


def words_of(key: NoiseKey, vocab_size: int) -> Words:
    """The words of ids 0 .. vocab_size - 1 [vocab]."""
    num_counters = (vocab_size + 3) // 4
    counter = np.empty((4, num_counters), dtype=np.uint64)
    counter[0] = key.choice_index
    counter[1] = key.position
    counter[2] = np.arange(num_counters)
    counter[3] = key.purpose
    seed = np.array([[key.seed & 0xFFFFFFFF], [key.seed >> 32]], dtype=np.uint64)
    return philox4x32(counter, seed).T.reshape(-1)[:vocab_size]


def uniform(key: NoiseKey, *, purpose: Purpose) -> float:
    """A number between 0 and 1 that belongs to a position: the middle of the cell of token id 0's word."""
    word = words_of(replace(key, purpose=purpose), 1)[0]
    return (int(word) + 0.5) * 2.0**-32


def gumbel(words: Words) -> Doubles:
    """Standard Gumbel noise, -log(-log(u)) with u at the middle of the word's cell: from -3.14 to 22.87."""
    middles: Doubles = (words.astype(np.float64) + 0.5) * 2.0**-32
    return -log_of(-log_of(middles))
