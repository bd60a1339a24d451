"""An Ollama model's parameters, system text and template as defaults in our words. Called by the catalog.

A parameter or layer that has no counterpart here is named in one warning, never silently dropped. The template
is in Go's template language and is not run: the GGUF file's own chat template is.
"""

import logging
from collections.abc import Mapping
from typing import Any

from twostroke.errors import ModelFileError, ParamsError
from twostroke.model.defaults import ModelDefaults
from twostroke.model.ollama_store import OllamaModel
from twostroke.params import SamplingParams

logger = logging.getLogger("twostroke")

FIELDS = {  # parameters of the same meaning
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repeat_penalty": "repetition_penalty",
    "repeat_last_n": "penalty_last_n",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "seed": "seed",
    "num_predict": "max_tokens",
    "stop": "stop",
}
NEGATIVE_IS_UNSET = ("seed", "num_predict")  # a random seed; an answer without a limit
GO_TEMPLATE = (
    "this model's template is in Go's template language, which is not read here, and its GGUF file has no chat "
    "template of its own; use a GGUF file that has one (hf:ORG/REPO), or send a raw prompt: LLM.generate, "
    "`twostroke run --raw` or /v1/completions"
)


def ollama_defaults(model: OllamaModel) -> ModelDefaults:
    """What `model` wishes. Raises ModelFileError that names the parameter, its value and the limit."""
    given = dict(model.parameters)
    context = _context(model, given.pop("num_ctx", None))
    unset = [name for name in NEGATIVE_IS_UNSET if _is_negative(given.get(name))]
    known = {name: value for name, value in given.items() if name in FIELDS and name not in unset}
    ignored = sorted(name for name in given if name not in known and name != "seed")
    if ignored:
        shown = ", ".join(f"{name} {given[name]!r:.40}" for name in ignored)
        logger.warning("ollama:%s sets what has no counterpart here and is not applied: %s", model.name, shown)
    if model.unread:
        logger.warning(
            "ollama:%s has layers that are not read here: %s; answers may differ from Ollama's",
            model.name,
            ", ".join(model.unread),
        )
    return ModelDefaults(
        params=_params(model, known),
        context=context,
        system=model.system or None,
        why_no_template=GO_TEMPLATE if model.template else None,
    )


def _params(model: OllamaModel, parameters: Mapping[str, Any]) -> SamplingParams:
    wishes: dict[str, Any] = {FIELDS[name]: value for name, value in parameters.items()}
    if "stop" in wishes:
        wishes["stop"] = _stops(wishes["stop"])
    try:
        return SamplingParams(**wishes)
    except ParamsError as error:
        name = next(name for name, field in FIELDS.items() if field == error.field)
        problem = str(error).removeprefix(error.field)
        raise ModelFileError(f"ollama:{model.name}", f"its parameter {name}{problem}") from None


def _stops(value: object) -> object:
    """One text or several; anything else is left for the check of the field."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def _context(model: OllamaModel, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelFileError(f"ollama:{model.name}", f"its parameter num_ctx is {value!r:.40}: it must be at least 1")
    return value


def _is_negative(value: object) -> bool:
    return isinstance(value, int) and value < 0
