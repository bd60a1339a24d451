"""What a request may know of the models: which it asked for, what absent fields mean, errors without our folders."""

from collections.abc import Sequence

from twostroke.errors import TwostrokeError
from twostroke.params import SamplingParams
from twostroke.serve.api_error import as_api_error
from twostroke.serve.load_errors import as_load_error
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.model_slot import ModelSlot
from twostroke.serve.openai import no_such_model


def known_model(name: str, models: ModelRegistry) -> ModelSlot:
    """The model of that name; looks into folders. Raises ApiError 404 where there is none."""
    slot = models.find(name)
    if slot is None:
        raise no_such_model(name, models.names())
    return slot


def names_and_defaults(name: object, models: ModelRegistry) -> tuple[Sequence[str], SamplingParams]:
    """What the field `model` may be, and what absent fields of this request mean; looks into folders.

    Raises ApiError where the model's own settings cannot be read.
    """
    slot = models.find(name) if isinstance(name, str) else None
    if slot is None:
        return models.names(), SamplingParams()
    return [str(name)], defaults_of(slot, models)


def defaults_of(slot: ModelSlot, models: ModelRegistry) -> SamplingParams:
    """What absent fields mean; may read files. Raises ApiError where the model's own settings cannot be read."""
    try:
        return models.default_params(slot)
    except (TwostrokeError, OSError) as error:
        raise as_load_error(error, slot.entry) from error


def told(
    error: Exception, slot: ModelSlot, *, prompt_field: str, structure_field: str = "response_format"
) -> Exception:
    """What a client is told of an error of a model's door; one of our own stays what it is."""
    message = str(error).replace(slot.entry.source, slot.name)  # a path tells where we live
    known = as_api_error(error, prompt_field=prompt_field, message=message, structure_field=structure_field)
    return known or error
