"""The flags of beam search, and how its answers are shown. `run` calls it."""

from twostroke.cli.flag_words import flag_of
from twostroke.core.report import Result
from twostroke.errors import ConfigError
from twostroke.params import BeamSearch

EARLY_STOPPING: dict[str, bool | str] = {"true": True, "false": False, "never": "never"}


def said_beam(
    *, beams: int | None, length_penalty: float | None, early_stopping: str | None, num_return: int | None
) -> BeamSearch | None:
    """The search that the flags describe; None where none is asked for. Raises ConfigError and ParamsError."""
    details = {"length_penalty": length_penalty, "early_stopping": early_stopping, "num_return": num_return}
    said = {name: value for name, value in details.items() if value is not None}
    if beams is None:
        if said:
            raise ConfigError(f"{flag_of(next(iter(said)))} belongs to beam search: add --beams N, or leave it out")
        return None
    if early_stopping is not None:
        said["early_stopping"] = EARLY_STOPPING.get(early_stopping, early_stopping)
    return BeamSearch(width=beams, **said)  # type: ignore[arg-type]


def all_answers(result: Result) -> str:
    """The answers of a search that was to return several, best first, each under its score."""
    return "\n\n".join(
        f"[{place}] score {beam.score:.4f}, {beam.finish_reason.value}\n{beam.text}"
        for place, beam in enumerate(result.beams, 1)
    )
