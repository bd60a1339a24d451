"""Which units engines say they use, and when a ratio between two of them is fair."""

import pytest

from twostroke.measure.cpu_units import AVX512, VNNI, units_of_isa, units_of_words, why_unfair

LLAMA_WIDE = "CPU : AVX = 1 | AVX2 = 1 | AVX512 = 1 | AVX512_VNNI = 1 | AVX512_BF16 = 1 | REPACK = 1 | "
LLAMA_AVX2 = "CPU : AVX = 1 | AVX2 = 1 | REPACK = 1 | "
LLAMA_ZEROS = "AVX = 1 | AVX_VNNI = 0 | AVX2 = 1 | AVX512 = 0 | AVX512_VNNI = 0 | NEON = 0 | "
ONEDNN_WIDE = "Intel AVX-512 with Intel DL Boost and bfloat16 support"


@pytest.mark.parametrize(
    ("words", "units"),
    [
        (LLAMA_WIDE, {AVX512, VNNI}),
        (LLAMA_AVX2, set()),
        (LLAMA_ZEROS, set()),
        ("AVX_VNNI = 1 | AVX2 = 1", {VNNI}),
        ("AVX512 = 1 | AVX512_VNNI = 0", {AVX512}),
        (ONEDNN_WIDE, {AVX512, VNNI}),
        ("Intel AVX2", set()),
        ("Intel AVX2 with Intel DL Boost", {VNNI}),
    ],
)
def test_units_are_read_from_an_engines_own_words(words: str, units: set[str]) -> None:
    assert units_of_words(words) == frozenset(units)


def test_an_engine_that_says_nothing_is_unknown() -> None:
    assert units_of_words("") is None
    assert (
        why_unfair("avx2", "", peer="some-bench") == "no ratio: some-bench does not say which units of the CPU it uses"
    )


@pytest.mark.parametrize(("isa", "words"), [("avx512", LLAMA_WIDE), ("avx512", ONEDNN_WIDE), ("avx2", LLAMA_AVX2)])
def test_the_same_units_on_both_sides_are_fair(isa: str, words: str) -> None:
    assert why_unfair(isa, words, peer="llama.cpp") is None


@pytest.mark.parametrize(
    ("isa", "words", "reason"),
    [
        ("avx512", LLAMA_AVX2, "no ratio: AVX-512 and VNNI in twostroke only"),
        ("avx2", LLAMA_WIDE, "no ratio: AVX-512 and VNNI in llama.cpp only"),
        ("avxvnni", "AVX512 = 1", "no ratio: VNNI in twostroke only, AVX-512 in llama.cpp only"),
    ],
)
def test_a_unit_on_one_side_only_is_told(isa: str, words: str, reason: str) -> None:
    assert why_unfair(isa, words, peer="llama.cpp") == reason


def test_a_path_without_wide_units_has_none() -> None:
    assert units_of_isa("portable") == units_of_isa("avx2") == set()
