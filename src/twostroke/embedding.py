"""What one request for an embedding wishes: frozen, checked when made."""

from dataclasses import dataclass

from twostroke.errors import ParamsError


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingParams:
    """`dimensions` None is the model's own length; a shorter one is the vector's beginning, made unit length again.

    Raises ParamsError.
    """

    dimensions: int | None = None

    def __post_init__(self) -> None:
        if self.dimensions is not None and (type(self.dimensions) is not int or self.dimensions < 1):
            raise ParamsError(
                f"dimensions is {self.dimensions!r}: it must be a whole number, at least 1, or None", field="dimensions"
            )
