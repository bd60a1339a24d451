"""Noise that belongs to a token, not to a moment: Philox4x32-10 (Salmon et al., SC'11, section 3.3).

The noise of a token depends on the seed, the choice, the position and the token's id alone, so neither
the batch nor the order of rows nor the other surviving tokens can change a draw.

    key     = seed, 64 bits
    counter = | choice index | position | token id // 4 | purpose |     one word of 32 bits each
    word    = output word (token id % 4) of that counter

Four neighbouring ids share a counter because one call of Philox makes four independent words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]  # 32-bit words in 64-bit cells, so that a product of two fits

_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], dtype=np.uint64)
_WEYL = np.array([[0x9E3779B9], [0xBB67AE85]], dtype=np.uint64)  # what a round adds to the key
_ROUND_INDICES = np.arange(10, dtype=np.uint64)[:, np.newaxis, np.newaxis]
_PASS = 3072  # counters at a time: the three working buffers of 48 KB each stay in the L2 cache
_WORD_BITS = np.uint64(32)
_WORD_MASK = np.uint64(0xFFFFFFFF)

GUMBEL_TAIL = 6.0  # one word in 404 has more noise than this
TAIL_WORD = np.uint64(int(2**32 * np.exp(-np.exp(-GUMBEL_TAIL))) - 1)  # words up to this one have at most GUMBEL_TAIL


class Purpose(IntEnum):
    """Keeps draws of different use apart; part of the counter."""

    SAMPLE = 0


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """Names the noise of one token to come; the token id completes it."""

    seed: int
    choice_index: int
    position: int
    purpose: Purpose = Purpose.SAMPLE


def philox4x32(counter: Words, key: Words) -> Words:
    """Four output words [4, n] of counters [4, n] under keys [2, n] or [2, 1]."""
    even = counter[0::2].copy()  # words 0 and 2 are multiplied
    odd = counter[1::2].copy()  # words 1 and 3 are mixed in
    high = np.empty_like(even)
    round_keys = (key + _WEYL * _ROUND_INDICES) & _WORD_MASK
    for round_key in round_keys:
        np.multiply(even, _MULTIPLIERS, out=even)
        np.right_shift(even, _WORD_BITS, out=high)
        np.bitwise_and(even, _WORD_MASK, out=even)
        np.bitwise_xor(odd, high[::-1], out=odd)
        np.bitwise_xor(odd, round_key, out=odd)
        even, odd = odd, even[::-1]
    output = np.empty_like(counter)
    output[0::2] = even
    output[1::2] = odd
    return output


def words_of_all(key: NoiseKey, vocab_size: int) -> Words:
    """The words of ids 0 .. vocab_size - 1 [vocab]."""
    num_counters = (vocab_size + 3) // 4
    seed = _split_seeds([key])
    words = np.empty((num_counters, 4), dtype=np.uint64)
    for start in range(0, num_counters, _PASS):
        counter = np.empty((4, min(_PASS, num_counters - start)), dtype=np.uint64)
        counter[0] = key.choice_index
        counter[1] = key.position
        counter[2] = np.arange(start, start + counter.shape[1], dtype=np.uint64)
        counter[3] = key.purpose
        words[start : start + _PASS] = philox4x32(counter, seed).T
    return words.reshape(-1)[:vocab_size]


def words_of_some(keys: Sequence[NoiseKey], token_ids: Sequence[NDArray[np.intp]]) -> Words:
    """The words of some ids of several rows, one row after the other; the same as `words_of_all` at those ids."""
    lengths = [len(ids) for ids in token_ids]
    ids = np.concatenate(token_ids).astype(np.uint64)
    facts = np.array([(key.choice_index, key.position, key.purpose) for key in keys], dtype=np.uint64)
    counter = np.empty((4, len(ids)), dtype=np.uint64)
    counter[[0, 1, 3]] = np.repeat(facts.T, lengths, axis=1)
    counter[2] = ids >> np.uint64(2)
    output = philox4x32(counter, np.repeat(_split_seeds(keys), lengths, axis=1))
    return np.asarray(output[(ids & np.uint64(3)).astype(np.intp), np.arange(len(ids))])


def _split_seeds(keys: Sequence[NoiseKey]) -> Words:
    seeds = np.array([key.seed for key in keys], dtype=np.uint64)
    return np.stack([seeds & _WORD_MASK, seeds >> _WORD_BITS])


def gumbel(words: Words) -> NDArray[np.float64]:
    """Standard Gumbel noise, -log(-log(u)) with u at the middle of the word's cell: from -3.14 to 22.87."""
    return np.asarray(-np.log(-np.log((words + 0.5) * 2.0**-32)), dtype=np.float64)
