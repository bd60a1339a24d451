import numpy as np
import pytest
from hypothesis import given, strategies as st

from twostroke import _native
from twostroke.sample.random import NoiseKey, gumbel, philox4x32, words_of

ZEROS = (0, 0, 0, 0)
ONES = (0xFFFFFFFF,) * 4
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)  # the digits of pi, as in the published vectors


def philox_by_integers(
    counter: list[int], key: list[int], *, bits: int, multipliers: list[int], weyl: list[int]
) -> list[int]:
    """The generator as the paper writes it, for both word sizes, on Python's integers."""
    mask = 2**bits - 1
    for _ in range(10):
        left, right = multipliers[0] * counter[0], multipliers[1] * counter[2]
        counter = [
            (right >> bits) ^ counter[1] ^ key[0],
            right & mask,
            (left >> bits) ^ counter[3] ^ key[1],
            left & mask,
        ]
        key = [(key[0] + weyl[0]) & mask, (key[1] + weyl[1]) & mask]
    return counter


def philox32_by_integers(counter: list[int], key: list[int]) -> list[int]:
    return philox_by_integers(
        counter, key, bits=32, multipliers=[0xD2511F53, 0xCD9E8D57], weyl=[0x9E3779B9, 0xBB67AE85]
    )


def column(values: tuple[int, ...]) -> np.ndarray:
    return np.array(values, dtype=np.uint64)[:, np.newaxis]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        (ZEROS, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (ONES, ONES[:2], (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (PI, (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)
def test_philox_gives_the_known_answers_of_random123(
    counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert tuple(philox4x32(column(counter), column(key))[:, 0].tolist()) == expected
    assert tuple(philox32_by_integers(list(counter), list(key))) == expected


def test_the_integer_twin_gives_numpys_words_at_64_bits() -> None:
    generator = np.random.Philox(counter=[1, 2, 3, 4], key=[5, 6])  # counts up before its first block
    ours = philox_by_integers(
        [2, 2, 3, 4],
        [5, 6],
        bits=64,
        multipliers=[0xD2E7470EE14C6C93, 0xCA5A826395121157],
        weyl=[0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B],
    )
    assert generator.random_raw(4).tolist() == ours


@given(st.lists(st.lists(st.integers(0, 2**32 - 1), min_size=6, max_size=6), min_size=1, max_size=5))
def test_lanes_with_their_own_keys_equal_the_integer_twin(facts: list[list[int]]) -> None:
    table = np.array(facts, dtype=np.uint64).T
    output = philox4x32(table[:4], table[4:])
    assert output.T.tolist() == [philox32_by_integers(fact[:4], fact[4:]) for fact in facts]


@pytest.mark.parametrize("num_counters", [1, 7, 9000])
def test_one_key_for_all_equals_a_key_for_each(num_counters: int) -> None:
    counter = np.zeros((4, num_counters), dtype=np.uint64)
    counter[2] = np.arange(num_counters)
    key = column((11, 22))
    whole = philox4x32(counter, key)
    assert (philox4x32(counter, np.repeat(key, num_counters, axis=1)) == whole).all()
    for index in (0, num_counters // 2, num_counters - 1):
        assert whole[:, index].tolist() == philox32_by_integers([0, 0, index, 0], [11, 22])


def test_the_layout_of_the_counter_is_the_documented_one() -> None:
    key = NoiseKey(seed=(5 << 32) + 3, choice_index=2, position=40)
    words = words_of(key, 10)
    for token_id in range(10):
        assert int(words[token_id]) == philox32_by_integers([2, 40, token_id // 4, 0], [3, 5])[token_id % 4]


def test_every_fact_of_the_key_changes_the_words() -> None:
    base = NoiseKey(seed=1, choice_index=0, position=0)
    others = [NoiseKey(2, 0, 0), NoiseKey(1 + 2**32, 0, 0), NoiseKey(1, 1, 0), NoiseKey(1, 0, 1)]
    words = words_of(base, 256)
    for other in others:
        assert (words_of(other, 256) == words).mean() < 0.02


def test_noise_is_finite_at_both_ends_and_rises_with_the_word() -> None:
    noise = gumbel(np.array([0, 1, 2**31, 2**32 - 2, 2**32 - 1], dtype=np.uint64))
    assert np.isfinite(noise).all()
    assert (np.diff(noise) > 0).all()
    assert noise[0] == pytest.approx(-3.13, abs=0.02)
    assert noise[-1] == pytest.approx(22.87, abs=0.01)


@given(st.integers(0, 2**32 - 1))
def test_leading_ones_of_a_word_bound_its_noise(word: int) -> None:
    """What lets the native sampler leave out logarithms."""
    num_ones = 32 - (word ^ 0xFFFFFFFF).bit_length()
    assert gumbel(np.array([word], dtype=np.uint64))[0] <= (num_ones + 1) * np.log(2)


@given(st.integers(0, 2**32 - 1))
def test_native_noise_is_the_definition_bit_for_bit(word: int) -> None:
    assert _native.gumbel(word) == gumbel(np.array([word], dtype=np.uint64))[0]


def test_noise_has_the_mean_and_variance_of_the_gumbel_law() -> None:
    noise = gumbel(words_of(NoiseKey(3, 0, 0), 200_000))
    assert noise.mean() == pytest.approx(0.57722, abs=5 * 1.2825 / 200_000**0.5)
    assert noise.var() == pytest.approx(np.pi**2 / 6, abs=0.05)


def test_the_logarithm_of_an_element_does_not_depend_on_its_place() -> None:
    """Else a token's noise would depend on which others survived."""
    words = words_of(NoiseKey(9, 0, 0), 1000)
    whole = gumbel(words)
    for start, stop in [(0, 1), (1, 4), (3, 20), (5, 997), (999, 1000)]:
        assert (gumbel(words[start:stop].copy()) == whole[start:stop]).all()
