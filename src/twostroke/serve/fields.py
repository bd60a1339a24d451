"""The fields of a JSON object, taken one by one and checked; whatever nobody took is refused, all of it at once.

Used by every route that reads a body. Null means absent: OpenAI's optional fields are nullable, ours too. 0 never does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twostroke.serve.api_error import ApiError
from twostroke.serve.body import cut, kind_of

MAX_LISTED = 10  # refused fields that a message names


@dataclass(frozen=True, slots=True)
class Refused:
    """One field that nobody took, and what its object takes."""

    field: str  # as the client wrote it, with the place of its object
    place: str
    honoured: tuple[str, ...]


class Fields:
    """One object of a body. `place` is how its fields are written in messages: "" or "stream_options."."""

    def __init__(self, values: Mapping[str, Any], *, place: str = "", refused: list[Refused] | None = None) -> None:
        self.place = place
        self._values = values
        self._known: set[str] = set()
        self._honoured: list[str] = []
        self._refused: list[Refused] = [] if refused is None else refused  # shared with the objects inside

    def take(self, name: str) -> Any:
        """The value, None where it is absent or null. The field is honoured from now on."""
        self._honoured.append(name)
        return self.look_at(name)

    def look_at(self, name: str) -> Any:
        """The value of a field that is known without being honoured."""
        self._known.add(name)
        return self._values.get(name)

    def required(self, name: str, wanted: type, words: str) -> Any:
        """The value of a field that must be there; null is a value of the wrong kind."""
        value = self.take(name)
        if name not in self._values:
            raise ApiError(f"{self.place}{name} is missing: it must be {words}", param=f"{self.place}{name}")
        if not isinstance(value, wanted):
            raise self.wrong(name, words)
        return value

    def flag(self, name: str) -> bool | None:
        value = self._optional(name, bool, "true or false")
        return None if value is None else bool(value)

    def text(self, name: str) -> str | None:
        value = self._optional(name, str, "a string")
        return None if value is None else str(value)

    def array(self, name: str) -> list[Any] | None:
        value = self._optional(name, list, "an array")
        return None if value is None else list(value)

    def object(self, name: str) -> "Fields | None":
        value = self._optional(name, dict, "an object")
        return None if value is None else Fields(value, place=f"{self.place}{name}.", refused=self._refused)

    def inside(self, value: Any, place: str) -> "Fields":
        """An object that stands somewhere inside this one, as `place` says."""
        if not isinstance(value, dict):
            raise wrong(place, "an object", value)
        return Fields(value, place=f"{place}.", refused=self._refused)

    def values(self) -> Mapping[str, Any]:
        """All of an object that goes on as it is."""
        return self._values

    def number(self, name: str) -> int | float | None:
        """A number as it was written; its range is the business of whoever asks."""
        value = self.take(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise self.wrong(name, "a number")
        return value

    def whole(self, name: str, *, low: int, high: int) -> int | None:
        """A whole number within limits."""
        value = self.number(name)
        if value is None:
            return None
        if not isinstance(value, int) or not low <= value <= high:
            raise ApiError(
                f"{self.place}{name} is {value}: it must be a whole number from {low} to {high}",
                param=f"{self.place}{name}",
            )
        return value

    def _optional(self, name: str, wanted: type, words: str) -> Any:
        value = self.take(name)
        if value is not None and not isinstance(value, wanted):
            raise self.wrong(name, words)
        return value

    def wrong(self, name: str, wanted: str) -> ApiError:
        """The error of a field whose value is of another kind."""
        return wrong(f"{self.place}{name}", wanted, self._values.get(name))

    def end(self, *, null_keys_pass: bool = False) -> None:
        """Every known field was taken: the others are refused later, together with those of other objects."""
        honoured = tuple(sorted(self._honoured))
        for name, value in self._values.items():
            if name not in self._known and not (null_keys_pass and value is None):
                self._refused.append(Refused(cut(f"{self.place}{name}"), self.place, honoured))

    def refuse_unknown(self) -> None:
        """Raise ApiError that names every field nobody took, in all objects that ended."""
        if not self._refused:
            return
        shown = ", ".join(each.field for each in self._refused[:MAX_LISTED])
        more = len(self._refused) - MAX_LISTED
        if more > 0:
            shown += f" and {more} more"
        are, them = ("is", "it") if len(self._refused) == 1 else ("are", "them")
        raise ApiError(
            f"{shown} {are} refused: this server does not honour {them}, leave {them} out "
            f"(honoured{'; '.join(_honoured_beside(self._refused))})",
            param=self._refused[0].field,
            code="unknown_field",
        )


def _honoured_beside(refused: Sequence[Refused]) -> list[str]:
    """What may stand where a refused field stood, once for all places that take the same: ` in options: seed, ...`."""
    places: dict[tuple[str, ...], str] = {}
    for each in refused:
        places.setdefault(each.honoured, each.place)
    return [f"{f' in {place[:-1]}' if place else ''}: {', '.join(honoured)}" for honoured, place in places.items()]


def wrong(field: str, wanted: str, value: Any) -> ApiError:
    """The error of a value of the wrong kind."""
    told = "" if value is None or isinstance(value, list | dict) else f"{shown(value)}, "
    return ApiError(f"{field} is {told}{kind_of(value)}: it must be {wanted}", param=field)


def shown(value: Any) -> str:
    """What a client sent, at most as long as a message may repeat."""
    return cut(repr(value))


def one_of(words: Sequence[str]) -> str:
    return f"one of {', '.join(words)}"
