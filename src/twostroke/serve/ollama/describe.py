"""Models as Ollama's clients see them: lines of its lists, and everything about one. Facts in, JSON out."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from twostroke.chat.answer_format import answer_format
from twostroke.model.facts import ModelFacts
from twostroke.model.ollama_defaults import FIELDS
from twostroke.params import SamplingParams

NEVER = "9999-12-31T23:59:59Z"  # when a model expires that is not unloaded
PARAMETER_WIDTH = 30  # of the name in a line of parameters


def tag(name: str, facts: ModelFacts) -> dict[str, Any]:
    """One line of /api/tags."""
    return {
        "name": name,
        "model": name,
        "modified_at": _moment(facts.modified_s),
        "size": facts.num_bytes,
        "digest": facts.digest,
        "details": details(facts),
    }


def running(name: str, facts: ModelFacts, *, num_bytes: int, context: int, expires_s: float | None) -> dict[str, Any]:
    """One line of /api/ps; `num_bytes` are those of weights and KV cache. No byte is in a GPU."""
    line = tag(name, facts)
    del line["modified_at"]
    expires_at = NEVER if expires_s is None else _moment(expires_s)
    return line | {"size": num_bytes, "size_vram": 0, "expires_at": expires_at, "context_length": context}


def shown(
    name: str, facts: ModelFacts, *, params: SamplingParams | None, context: int | None, is_verbose: bool
) -> dict[str, Any]:
    """The reply of /api/show; `params` and `context` are what a loaded model takes where a request says nothing."""
    parameters = {} if params is None else parameters_of(params)
    if context is not None:
        parameters["num_ctx"] = context
    lines = [line for key, value in parameters.items() for line in _parameter_lines(key, value)]
    modelfile = [f"FROM {name}", *(f"PARAMETER {' '.join(line.split(None, 1))}" for line in lines)]
    reply: dict[str, Any] = {
        "license": str(facts.metadata.get("general.license") or ""),
        "modelfile": "\n".join(modelfile) + "\n",
        "parameters": "\n".join(lines),
        "template": facts.template or "",
        "details": details(facts),
        "model_info": _model_info(facts),
        "capabilities": capabilities(facts.template),
        "modified_at": _moment(facts.modified_s),
    }
    if is_verbose:
        reply["tensors"] = [
            {"name": tensor.name, "type": tensor.tensor_type, "shape": list(tensor.shape)} for tensor in facts.tensors
        ]
    return reply


def capabilities(template: str | None) -> list[str]:
    """What the model's template knows beside messages."""
    found = answer_format(template)
    has_tools = found.calls is not None and "tools" in (template or "")
    return ["completion", *(["tools"] if has_tools else []), *(["thinking"] if found.think is not None else [])]


def details(facts: ModelFacts) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": facts.format,
        "family": facts.architecture,
        "families": [facts.architecture],
        "parameter_size": parameter_size(facts.num_parameters),
        "quantization_level": facts.quantisation,
    }


def parameter_size(count: int) -> str:
    """134.52M, 8.03B."""
    for unit, letter in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= unit:
            return f"{count / unit:.2f}{letter}"
    return str(count)


def parameters_of(params: SamplingParams) -> dict[str, Any]:
    """Params in Ollama's words; what is off is left out, but for the temperature."""
    values = {theirs: getattr(params, ours) for theirs, ours in FIELDS.items()}
    off = {theirs: getattr(SamplingParams(), ours) for theirs, ours in FIELDS.items()}
    always = ("temperature", "num_predict")
    return {name: value for name, value in values.items() if name in always or value != off[name]}


def _parameter_lines(name: str, value: Any) -> list[str]:
    values = value if isinstance(value, tuple) else (value,)
    return [f"{name:<{PARAMETER_WIDTH}} {_literal(each)}" for each in values]


def _literal(value: Any) -> str:
    if not isinstance(value, str):
        return f"{value:g}" if isinstance(value, float) else str(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _model_info(facts: ModelFacts) -> Mapping[str, Any]:
    kept = {key: value for key, value in facts.metadata.items() if key != "tokenizer.chat_template"}
    return {**kept, "general.architecture": facts.architecture, "general.parameter_count": facts.num_parameters}


def _moment(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat().replace("+00:00", "Z")
