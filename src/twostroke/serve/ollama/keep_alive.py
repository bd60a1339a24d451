"""The field `keep_alive` of Ollama's requests."""

from twostroke.serve.api_error import ApiError
from twostroke.serve.fields import Fields, shown
from twostroke.serve.keep_alive import read_keep_alive


def take_keep_alive(fields: Fields) -> float | None:
    """How long the model stays loaded afterwards, in seconds; None where nothing is said. Raises ApiError."""
    value = fields.take("keep_alive")
    if value is None:
        return None
    try:
        return read_keep_alive(value)
    except ValueError as error:
        raise ApiError(f"keep_alive is {shown(value)}: {error}", param="keep_alive") from None
