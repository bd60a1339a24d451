"""How many answers there are and what chooses them, read from a body: `n`, `best_of`, beam search, presets.

Called by `openai.read_wish` before the fields of sampling, which replace single values of a preset. Names are those of
OpenAI and vLLM where they have the field; what cannot be combined is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from twostroke.errors import ParamsError
from twostroke.params import BeamSearch, SamplingParams
from twostroke.presets import Preset, preset
from twostroke.serve.api_error import ApiError
from twostroke.serve.fields import Fields, shown
from twostroke.serve.limits import LimitsConfig

BEAM_FIELDS: Mapping[str, str] = {
    "beam_width": "width",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
    "n": "num_return",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyWish:
    """What the answers of one prompt come from."""

    defaults: SamplingParams  # what is not said means this
    num_told: int  # answers in the reply, of each prompt
    num_tried: int  # sequences drawn for them; the best by mean log-probability are told
    preset: Preset | None = None

    @property
    def picks(self) -> bool:
        return self.num_tried > self.num_told


def read_strategy(
    fields: Fields, defaults: SamplingParams, *, is_chat: bool, is_stream: bool, num_prompts: int, limits: LimitsConfig
) -> StrategyWish:
    """Raises ApiError that names the field."""
    num_told = fields.whole("n", low=1, high=limits.max_choices) or 1
    named = _preset(fields)
    beam = _beam(fields, num_told, named=named)
    best_of = None if is_chat else fields.whole("best_of", low=1, high=limits.max_choices)
    num_tried = num_told if best_of is None else best_of
    if num_tried < num_told:
        raise ApiError(
            f"best_of is {best_of} and n is {num_told}: of so many tries n are told, send more", param="best_of"
        )
    if num_prompts * num_tried > limits.max_answers:
        name = "n" if best_of is None else "best_of"
        raise ApiError(
            f"{num_prompts} prompts x {name} of {num_tried} are {num_prompts * num_tried} answers: "
            f"the limit is {limits.max_answers}, send several requests",
            param=name,
        )
    if is_stream and num_tried > num_told:
        raise ApiError(
            f"best_of is {best_of}, n is {num_told} and stream is true: which answers are told is known at their end, "
            "leave out stream",
            param="best_of",
        )
    if named is not None:
        defaults = named.within(defaults)
    if beam is None:
        return StrategyWish(defaults=defaults, num_told=num_told, num_tried=num_tried, preset=named)
    if best_of is not None:
        raise ApiError("best_of is given beside beam search, which draws no answers: leave it out", param="best_of")
    if is_stream:
        raise ApiError(
            "stream is true: beam search knows its answers at their end, leave out stream or the search", param="stream"
        )
    return StrategyWish(defaults=replace(defaults.limits(), beam=beam), num_told=num_told, num_tried=1, preset=named)


def _preset(fields: Fields) -> Preset | None:
    name = fields.text("preset")
    if name is None:
        return None
    try:
        return preset(name)
    except ParamsError as error:
        raise ApiError(str(error).replace(repr(name), shown(name)), param="preset") from None


def _beam(fields: Fields, num_told: int, *, named: Preset | None) -> BeamSearch | None:
    """The search that is asked for by its fields, by a preset or by both; None where none is."""
    is_asked = fields.flag("use_beam_search")
    given = {field: fields.take(field) for field in BEAM_FIELDS if field != "n"}
    said = {BEAM_FIELDS[field]: value for field, value in given.items() if value is not None}
    of_preset = None if named is None else named.params.beam
    if named is not None and is_asked is not None and is_asked is not (of_preset is not None):
        kind = "draws its tokens" if of_preset is None else "is a beam search"
        raise ApiError(
            f"use_beam_search is {str(is_asked).lower()} and the preset {named.name} {kind}: leave one of them out",
            param="use_beam_search",
        )
    if not is_asked and of_preset is None:
        for field, value in given.items():
            if value is not None:
                raise ApiError(f"{field} belongs to beam search: set use_beam_search to true or drop it", param=field)
        return None
    usual = of_preset or BeamSearch()
    said = {"width": max(usual.width, num_told)} | said
    try:
        return replace(usual, **said, num_return=num_told)
    except ParamsError as error:
        field = next(field for field, name in BEAM_FIELDS.items() if name == error.field)
        raise ApiError(str(error).replace(error.field, field, 1), param=field) from None
