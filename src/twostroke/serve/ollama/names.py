"""Which model a request means, as Ollama's clients write it: a name without a tag means the tag `latest`."""

from twostroke.serve.api_error import ApiError
from twostroke.serve.fields import Fields, shown
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.model_slot import ModelSlot

LATEST = ":latest"


def take_name(fields: Fields) -> str:
    """The model's name, `name` being an older word for `model`. Raises ApiError."""
    model, name = fields.text("model"), fields.text("name")
    if not model and not name:
        raise ApiError("model is missing: it must be the name of a model", param="model")
    if model and name and model != name:
        raise ApiError(
            f"model and name are {shown(model)} and {shown(name)}: they mean the same, send one", param="name"
        )
    return model or name or ""


def find_model(wished: str, models: ModelRegistry) -> tuple[str, ModelSlot] | None:
    """The served name that is meant, and its model. Looks into folders: not for the event loop."""
    bare = wished.removesuffix(LATEST)
    for name in (wished, bare, bare + LATEST):
        slot = models.find(name)
        if slot is not None:
            return name, slot
    return None


def known_model(wished: str, models: ModelRegistry) -> tuple[str, ModelSlot]:
    """The same. Raises ApiError 404 where there is none."""
    found = find_model(wished, models)
    if found is None:
        have = ", ".join(models.names())
        raise ApiError(f"model {shown(wished)} not found: this server has {have}", status=404, param="model")
    return found
