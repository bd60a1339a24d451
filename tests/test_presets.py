"""Names for ways to choose tokens: what they stand for, and what they leave to the request."""

import pytest

from twostroke.errors import ParamsError
from twostroke.params import BeamSearch, SamplingParams
from twostroke.presets import PRESETS, preset


@pytest.mark.parametrize(
    ("name", "params", "settings"),
    [
        ("exact", SamplingParams(), "temperature 0"),
        ("code", SamplingParams(temperature=0.2), "temperature 0.2"),
        ("chat", SamplingParams(temperature=0.7, top_p=0.9), "temperature 0.7, top_p 0.9"),
        ("creative", SamplingParams(temperature=0.8, top_p=0.95), "temperature 0.8, top_p 0.95"),
        ("translate", SamplingParams(beam=BeamSearch(width=4)), "beams 4, length_penalty 1"),
    ],
)
def test_a_name_stands_for_its_settings(name: str, params: SamplingParams, settings: str) -> None:
    assert (preset(name).params, preset(name).settings) == (params, settings)


def test_every_preset_has_its_own_name_and_a_reason() -> None:
    assert len({each.name for each in PRESETS}) == len(PRESETS) == 5
    assert all(len(each.reason) > 20 for each in PRESETS)


def test_an_unknown_name_is_answered_with_all_there_are() -> None:
    with pytest.raises(ParamsError, match="preset is 'poem': it must be one of exact, code, chat, creative, translate"):
        preset("poem")


@pytest.mark.parametrize("name", [each.name for each in PRESETS])
def test_where_an_answer_ends_is_the_requests_own(name: str) -> None:
    limits = SamplingParams(temperature=1.5, max_tokens=9, stop=("z",), stop_token_ids=(4,), ignore_eos=True)
    inside = preset(name).within(limits)
    assert inside.limits() == limits.limits()
    assert (inside.temperature, inside.beam) == (preset(name).params.temperature, preset(name).params.beam)
