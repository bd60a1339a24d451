"""Named ways to choose tokens, each with its reason. Doors print what a name stands for whenever it is used."""

from dataclasses import dataclass, fields, replace

from twostroke.errors import ParamsError
from twostroke.params import BeamSearch, SamplingParams


@dataclass(frozen=True, slots=True)
class Preset:
    """A name for how tokens are chosen; where an answer ends is the request's own."""

    name: str
    params: SamplingParams
    reason: str

    @property
    def settings(self) -> str:
        """What differs from nothing said, as people write it: temperature 0.7, top_p 0.9."""
        beam = self.params.beam
        if beam is not None:
            return f"beams {beam.width}, length_penalty {beam.length_penalty:g}"
        return ", ".join(f"{name} {getattr(self.params, name):g}" for name in self.fields) or "temperature 0"

    @property
    def fields(self) -> tuple[str, ...]:
        """What it sets."""
        return tuple(each.name for each in fields(self.params) if getattr(self.params, each.name) != each.default)

    def within(self, limits: SamplingParams) -> SamplingParams:
        """This choice of tokens with the ends of `limits`: max_tokens, stops, include_stop, ignore_eos."""
        return replace(
            self.params,
            max_tokens=limits.max_tokens,
            stop=limits.stop,
            stop_token_ids=limits.stop_token_ids,
            include_stop=limits.include_stop,
            ignore_eos=limits.ignore_eos,
        )


PRESETS = (
    Preset("exact", SamplingParams(), "the likeliest token each time: facts, extraction, tests"),
    Preset(
        "code",
        SamplingParams(temperature=0.2),
        "few continuations are right: close to the likeliest, with just enough noise to leave a loop",
    ),
    Preset(
        "chat",
        SamplingParams(temperature=0.7, top_p=0.9),
        "varied wording, without the tail of unlikely tokens that derails an answer",
    ),
    Preset(
        "creative",
        SamplingParams(temperature=0.8, top_p=0.95),
        "more of the tail: surprising continuations are wanted",
    ),
    Preset(
        "translate",
        SamplingParams(beam=BeamSearch(width=4)),
        "the input fixes the content: the likeliest whole sentence beats the likeliest next word",
    ),
)


def preset(name: str) -> Preset:
    """The preset of that name; ParamsError with all names where there is none."""
    for each in PRESETS:
        if each.name == name:
            return each
    raise ParamsError(f"preset is {name!r}: it must be one of {', '.join(p.name for p in PRESETS)}", field="preset")
