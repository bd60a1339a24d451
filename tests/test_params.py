"""Every field of a request at its limits: the last value that is taken, the first that is not, and the words for it."""

import dataclasses
import math
from typing import Any

import pytest

from twostroke.errors import ParamsError
from twostroke.params import (
    MAX_BIASED_TOKENS,
    MAX_LOGPROBS,
    MAX_SEED,
    MAX_STOP_STRINGS,
    NUM_DRAWN_SEEDS,
    BeamSearch,
    SamplingParams,
)
from twostroke.samplers import SAMPLERS

TINY = math.nextafter(0.0, 1.0)
ABOVE_ONE, ABOVE_TWO = math.nextafter(1.0, 2.0), math.nextafter(2.0, 3.0)
HUGE = 1.7976931348623157e308
NUMBERS = ["temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"]
WHOLE_NUMBERS = ["top_k", "seed", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs"]


def refusal(**fields: Any) -> str:
    """What is said about the one field that is given; the error names that field."""
    (name,) = fields
    with pytest.raises(ParamsError) as refused:
        SamplingParams(**fields)
    assert refused.value.field == name
    return str(refused.value)


def test_nothing_said_is_greedy_and_unfiltered() -> None:
    assert dataclasses.asdict(SamplingParams()) == {
        "temperature": 0.0,
        "top_k": None,
        "top_p": 1.0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "penalty_last_n": -1,
        "typical_p": 1.0,
        "top_n_sigma": 0.0,
        "dynatemp_range": 0.0,
        "dynatemp_exponent": 1.0,
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "mirostat_tau": None,
        "mirostat_eta": 0.1,
        "dry_multiplier": 0.0,
        "dry_base": 1.75,
        "dry_allowed_length": 2,
        "dry_penalty_last_n": -1,
        "dry_sequence_breakers": ("\n", ":", '"', "*"),
        "no_repeat_ngram_size": 0,
        "bad_words": (),
        "sampler_order": SAMPLERS,
        "seed": None,
        "max_tokens": 256,
        "stop": (),
        "stop_regex": (),
        "include_stop": False,
        "stop_token_ids": (),
        "ignore_eos": False,
        "logprobs": None,
        "prompt_logprobs": None,
        "structure": None,
        "logit_bias": (),
        "min_tokens": 0,
        "beam": None,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0),
        ("temperature", -0.0),
        ("temperature", TINY),
        ("temperature", HUGE),
        ("temperature", 10**308),
        ("top_p", TINY),
        ("top_p", 1),
        ("min_p", 0),
        ("min_p", 1.0),
        ("repetition_penalty", TINY),
        ("repetition_penalty", HUGE),
        ("presence_penalty", -2),
        ("presence_penalty", 2.0),
        ("frequency_penalty", -2.0),
        ("frequency_penalty", 2),
        ("top_k", -1),
        ("top_k", 0),
        ("top_k", None),
        ("top_k", 10**30),
        ("seed", 0),
        ("seed", MAX_SEED),
        ("seed", None),
        ("max_tokens", 1),
        ("max_tokens", 10**30),
        ("logprobs", 0),
        ("logprobs", MAX_LOGPROBS),
        ("logprobs", None),
        ("stop", ("x",) * MAX_STOP_STRINGS),
        ("stop", (" ", "\n", "\0")),
        ("stop_token_ids", (0,)),
        ("stop_token_ids", tuple(range(100))),
        ("ignore_eos", True),
        ("min_tokens", 256),
        ("logit_bias", ((0, -100), (1, 100.0))),
        ("logit_bias", tuple((token_id, 0.5) for token_id in range(MAX_BIASED_TOKENS))),
    ],
)
def test_the_last_value_inside_is_taken_as_it_is(name: str, value: Any) -> None:
    assert getattr(SamplingParams(**{name: value}), name) is value


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("temperature", -TINY, "temperature is -4.94066e-324: it must be a finite number, 0 or more"),
        ("temperature", math.inf, "temperature is inf: it must be a finite number, 0 or more"),
        ("temperature", math.nan, "temperature is nan: it must be a finite number, 0 or more"),
        ("top_p", 0, "top_p is 0: it must be above 0 and at most 1"),
        ("top_p", 0.0, "top_p is 0: it must be above 0 and at most 1"),
        ("top_p", -0.5, "top_p is -0.5: it must be above 0 and at most 1"),
        ("top_p", ABOVE_ONE, "top_p is 1: it must be above 0 and at most 1"),
        ("min_p", -TINY, "min_p is -4.94066e-324: it must be from 0 to 1"),
        ("min_p", ABOVE_ONE, "min_p is 1: it must be from 0 to 1"),
        ("repetition_penalty", 0.0, "repetition_penalty is 0: it must be a finite number above 0"),
        ("repetition_penalty", -1, "repetition_penalty is -1: it must be a finite number above 0"),
        ("repetition_penalty", math.inf, "repetition_penalty is inf: it must be a finite number above 0"),
        ("presence_penalty", ABOVE_TWO, "presence_penalty is 2: it must be from -2 to 2"),
        ("presence_penalty", -ABOVE_TWO, "presence_penalty is -2: it must be from -2 to 2"),
        ("frequency_penalty", ABOVE_TWO, "frequency_penalty is 2: it must be from -2 to 2"),
        ("frequency_penalty", -ABOVE_TWO, "frequency_penalty is -2: it must be from -2 to 2"),
        ("top_k", -2, "top_k is -2: it must be at least -1"),
        ("seed", -1, f"seed is -1: it must be from 0 to {2**64 - 1}"),
        ("seed", 2**64, f"seed is {2**64}: it must be from 0 to {2**64 - 1}"),
        ("max_tokens", 0, "max_tokens is 0: it must be at least 1"),
        ("logprobs", -1, "logprobs is -1: it must be from 0 to 20"),
        ("prompt_logprobs", -1, "prompt_logprobs is -1: it must be from 0 to 20"),
        ("prompt_logprobs", 1000, "prompt_logprobs is 1000: it must be from 0 to 20"),
        ("logprobs", 21, "logprobs is 21: it must be from 0 to 20"),
        ("min_tokens", -1, "min_tokens is -1: it must be at least 0"),
        ("min_tokens", 257, "min_tokens is 257: max_tokens is 256, it must not be more"),
        ("logit_bias", ((0, 100.1),), "logit_bias is 100.1: it must be from -100 to 100"),
        ("logit_bias", ((0, math.nan),), "logit_bias is nan: it must be from -100 to 100"),
        ("logit_bias", ((-1, 1.0),), "logit_bias is -1: it must be at least 0"),
        ("logit_bias", (("1", 1.0),), "logit_bias is '1': it must be a whole number"),
        ("logit_bias", ((1, 1.0), (1, 2.0)), "logit_bias has a token twice: keep one bias for each"),
        ("logit_bias", {1: 1.0}, "logit_bias must be a tuple of pairs (token id, bias)"),
        ("logit_bias", ((1, 2, 3),), "logit_bias must be a tuple of pairs (token id, bias)"),
        (
            "logit_bias",
            tuple((token_id, 0.5) for token_id in range(MAX_BIASED_TOKENS + 1)),
            "logit_bias has 1025 tokens: the limit is 1024",
        ),
        ("stop", ("x",) * 17, "stop has 17 strings: the limit is 16"),
        ("stop", ("x" * 4097,), "stop has a text of 4097 characters: the limit is 4096, shorten it"),
        (
            "dry_sequence_breakers",
            ("x" * 65,),
            "dry_sequence_breakers has a text of 65 characters: the limit is 64, shorten it",
        ),
        ("bad_words", ("x" * 513,), "bad_words has a word of 513 characters: the limit is 512"),
        ("bad_words", ((0,) * 513,), "bad_words has a word of 513 token ids: the limit is 512"),
        ("stop", ("x", ""), "stop has an empty text: every answer would end at once"),
        ("stop", ("x", 1), "stop has 1: each must be a string"),
        ("stop", (b"x",), "stop has b'x': each must be a string"),
        ("stop", ["x"], "stop is ['x']: it must be a tuple of strings"),
        ("stop", "x", "stop is 'x': it must be a tuple of strings"),
        ("stop", None, "stop is None: it must be a tuple of strings"),
        ("stop_token_ids", (3, -1), "stop_token_ids is -1: it must be at least 0"),
        ("stop_token_ids", (True,), "stop_token_ids is True: it must be a whole number"),
        ("stop_token_ids", ("1",), "stop_token_ids is '1': it must be a whole number"),
        ("stop_token_ids", [1], "stop_token_ids is [1]: it must be a tuple of ids"),
        ("stop_token_ids", None, "stop_token_ids is None: it must be a tuple of ids"),
        ("stop_regex", ("a",) * 5, "stop_regex has 5 strings: the limit is 4"),
        ("stop_regex", "a", "stop_regex is 'a': it must be a tuple of strings"),
        ("stop_regex", ("a", "b)"), "stop_regex has 'b)': a ) at character 1 closes nothing"),
        ("stop_regex", ("",), "stop_regex has an empty text: every answer would end at once"),
        ("include_stop", 1, "include_stop is 1: it must be true or false"),
        ("ignore_eos", 1, "ignore_eos is 1: it must be true or false"),
        ("ignore_eos", None, "ignore_eos is None: it must be true or false"),
        ("ignore_eos", "no", "ignore_eos is 'no': it must be true or false"),
    ],
)
def test_the_first_value_outside_is_refused_with_value_and_limit(name: str, value: Any, said: str) -> None:
    assert refusal(**{name: value}) == said


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [True, False, "1", None, 1j, [1], math.nan, math.inf, -math.inf, 10**400, -(10**400)])
def test_no_number_field_takes_what_is_no_finite_number(name: str, value: Any) -> None:
    said = refusal(**{name: value})
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    assert said.endswith("it must be a number") is not is_number
    assert said.startswith(f"{name} is ")


@pytest.mark.parametrize("name", WHOLE_NUMBERS)
@pytest.mark.parametrize("value", [True, False, 1.0, 1.5, "1", [1], math.nan])
def test_no_whole_number_field_takes_anything_else(name: str, value: Any) -> None:
    assert refusal(**{name: value}) == f"{name} is {value!r}: it must be a whole number"


def test_no_token_at_all_may_be_asked_for_where_the_prompt_is_scored() -> None:
    assert SamplingParams(max_tokens=0, prompt_logprobs=0).max_tokens == 0
    with pytest.raises(ParamsError, match="max_tokens is -1: it must be at least 0"):
        SamplingParams(max_tokens=-1, prompt_logprobs=0)


def test_stops_of_a_model_stay_in_front() -> None:
    assert SamplingParams(stop=("a", "b")).and_stop(["c", "a", "c"]) == ("a", "b", "c", "c")


def test_there_is_always_a_limit_for_tokens() -> None:
    assert refusal(max_tokens=None) == "max_tokens is None: it must be a whole number"


def test_a_replaced_field_is_checked_like_a_new_one() -> None:
    params = SamplingParams(top_k=5)
    assert dataclasses.replace(params, top_p=0.5) == SamplingParams(top_k=5, top_p=0.5)
    with pytest.raises(ParamsError, match="top_p is 2"):
        dataclasses.replace(params, top_p=2)


def test_params_are_values_that_nobody_changes() -> None:
    params = SamplingParams(stop=("a",))
    assert hash(params) == hash(SamplingParams(stop=("a",)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.seed = 1  # type: ignore[misc]


def test_a_search_goes_with_its_limits_and_nothing_that_draws() -> None:
    search = SamplingParams(
        beam=BeamSearch(width=3), max_tokens=5, stop=("a",), stop_token_ids=(1,), repetition_penalty=1.5
    )
    assert (search.num_sequences, SamplingParams().num_sequences) == (3, 1)
    wishes: dict[str, Any] = {
        "temperature": 0.5,
        "top_k": 3,
        "top_p": 0.5,
        "min_p": 0.5,
        "presence_penalty": 1.0,
        "frequency_penalty": 1.0,
        "logit_bias": ((1, 2.0),),
        "min_tokens": 2,
        "seed": 1,
        "logprobs": 2,
    }
    for name, value in wishes.items():
        with pytest.raises(ParamsError, match=f"{name} is .*: beam search finds the likeliest answer") as refused:
            SamplingParams(beam=BeamSearch(), **{name: value})
        assert refused.value.field == name
    with pytest.raises(ParamsError, match=r"repetition_penalty is 0.5: with beam search it must be 1 or more"):
        SamplingParams(beam=BeamSearch(), repetition_penalty=0.5)
    with pytest.raises(ParamsError, match="beam is 4: it must be a BeamSearch or None"):
        SamplingParams(beam=4)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"width": 0}, "width is 0: it must be at least 1"),
        ({"width": True}, "width is True: it must be a whole number"),
        ({"width": 2, "num_return": 3}, "num_return is 3: it must be from 1 to 2"),
        ({"num_return": 0}, "num_return is 0: it must be from 1 to 4"),
        ({"length_penalty": 10.5}, "length_penalty is 10.5: it must be from -10 to 10"),
        ({"length_penalty": math.nan}, "length_penalty is nan: it must be from -10 to 10"),
        ({"early_stopping": 1}, "early_stopping is 1: it must be true, false or 'never'"),
        ({"early_stopping": "always"}, "early_stopping is 'always': it must be true, false or 'never'"),
    ],
)
def test_a_search_that_cannot_be_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ParamsError) as refused:
        BeamSearch(**wrong)
    assert str(refused.value) == words
    assert refused.value.field == words.split()[0]


def test_limits_are_what_a_search_takes_of_other_wishes() -> None:
    drawn = SamplingParams(temperature=0.7, top_k=3, max_tokens=5, stop=("a",), stop_token_ids=(9,), ignore_eos=True)
    assert drawn.limits() == SamplingParams(max_tokens=5, stop=("a",), stop_token_ids=(9,), ignore_eos=True)


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"typical_p": 0.0}, "typical_p", "typical_p is 0: it must be above 0 and at most 1"),
        ({"top_n_sigma": -1.0}, "top_n_sigma", "top_n_sigma is -1: it must be a finite number, 0 or more"),
        ({"xtc_probability": 1.1}, "xtc_probability", "from 0 to 1"),
        ({"xtc_threshold": math.nan}, "xtc_threshold", "from 0 to 1"),
        ({"mirostat_tau": 0}, "mirostat_tau", "a finite number above 0"),
        ({"mirostat_eta": 1.5}, "mirostat_eta", "above 0 and at most 1"),
        ({"dry_base": 0.9}, "dry_base", "1 or more"),
        ({"dry_allowed_length": 0}, "dry_allowed_length", "from 1 to"),
        ({"penalty_last_n": -2}, "penalty_last_n", "from -1 to"),
        ({"no_repeat_ngram_size": 1.0}, "no_repeat_ngram_size", "must be a whole number"),
        (
            {"temperature": 1.7e308, "dynatemp_range": 1e308},
            "dynatemp_range",
            "is 1e+308: with a temperature of 1.7e+308 the highest is beyond every number",
        ),
        ({"dry_sequence_breakers": ["x"]}, "dry_sequence_breakers", "must be a tuple of strings"),
        ({"dry_sequence_breakers": ("",)}, "dry_sequence_breakers", "has an empty text"),
        ({"dry_sequence_breakers": ("x",) * 65}, "dry_sequence_breakers", "has 65 strings: the limit is 64"),
        ({"bad_words": "bad"}, "bad_words", "a tuple of texts or of tuples of token ids"),
        ({"bad_words": ("", "x")}, "bad_words", "has an empty word"),
        ({"bad_words": ((),)}, "bad_words", "has an empty word"),
        ({"bad_words": ((-1,),)}, "bad_words", "bad_words is -1"),
        ({"bad_words": ("x",) * 1025}, "bad_words", "has 1025 words: the limit is 1024"),
        ({"sampler_order": ["top_k"]}, "sampler_order", "must be a tuple of names"),
        ({"sampler_order": ("top_k", "topp")}, "sampler_order", "has 'topp': it must be one of penalties, dry,"),
        ({"sampler_order": ("top_k", "top_k")}, "sampler_order", "a name twice"),
        ({"sampler_order": ("top_k",), "top_p": 0.5}, "sampler_order", "leaves out top_p, which this request uses"),
        ({"typical_p": 0.5}, "typical_p", "temperature is 0, which takes the likeliest token"),
        ({"mirostat_tau": 5.0}, "mirostat_tau", "raise the temperature, or leave out mirostat_tau"),
        (
            {"mirostat_tau": 5.0, "temperature": 1.0, "top_k": 40, "min_p": 0.1},
            "mirostat_tau",
            "is set beside top_k, min_p: mirostat chooses by itself how many tokens stay; leave them out",
        ),
        (
            {"mirostat_tau": 5.0, "temperature": 1.0, "top_k": 40},
            "mirostat_tau",
            "is set beside top_k: mirostat chooses by itself how many tokens stay; leave it out, or mirostat_tau",
        ),
        ({"typical_p": 0.5, "temperature": 1.0, "beam": BeamSearch()}, "temperature", "beam search finds"),
        ({"bad_words": ("x",), "beam": BeamSearch()}, "bad_words", "beam search finds"),
    ],
)
def test_samplers_that_cannot_be_are_refused_with_the_reason(fields: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ParamsError) as refused:
        SamplingParams(**fields)
    assert refused.value.field == field
    assert words in str(refused.value)


def test_the_samplers_in_use_are_named_in_their_usual_order() -> None:
    assert SamplingParams().samplers == ()
    assert SamplingParams(temperature=1.0).samplers == ()
    assert SamplingParams(temperature=0.5, xtc_probability=0.1, top_k=3).samplers == ("temperature", "top_k", "xtc")
    order = ("xtc", "top_k", "temperature")
    assert SamplingParams(temperature=0.5, top_k=3, sampler_order=order).sampler_order == order


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ({}, False),
        ({"temperature": 1.0, "top_p": 0.5, "xtc_probability": 0.5, "min_tokens": 3, "seed": 1}, False),
        ({"logit_bias": ((1, 2.0),), "logprobs": 2}, False),
        ({"repetition_penalty": 1.1}, True),
        ({"frequency_penalty": -0.1}, True),
        ({"dry_multiplier": 0.5}, True),
        ({"no_repeat_ngram_size": 1}, True),
        ({"bad_words": ("a",)}, True),
        ({"temperature": 1.0, "mirostat_tau": 3.0}, True),
    ],
)
def test_what_depends_on_the_text_before_is_known(wishes: dict[str, Any], expected: bool) -> None:
    assert SamplingParams(**wishes).looks_back is expected


def test_a_seed_that_was_wished_for_stays_and_another_is_drawn() -> None:
    assert SamplingParams(seed=4).with_seed() == SamplingParams(seed=4)
    drawn = {SamplingParams(temperature=1.0).with_seed() for _ in range(3)}
    assert len({params.seed for params in drawn}) == 3  # alike once in 2**52
    assert all(params.seed is not None and params.seed < NUM_DRAWN_SEEDS for params in drawn)


def test_what_a_seed_changes_is_known() -> None:
    assert not SamplingParams().is_drawn
    assert SamplingParams(temperature=0.1).is_drawn
    assert not SamplingParams(beam=BeamSearch()).is_drawn
