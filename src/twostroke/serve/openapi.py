"""The OpenAPI document of the server: every route, and for every body the fields that are honoured, with their ranges.

Made from the application's own routes and served at /openapi.json. A body it allows may still be refused for what no
schema tells (the model's name, the context); one it forbids always is.
"""

from collections.abc import Iterable
from typing import Any

from starlette.routing import BaseRoute, Route

from twostroke import __version__
from twostroke.params import (
    MAX_BIASED_TOKENS,
    MAX_LOGIT_BIAS,
    MAX_LOGPROBS,
    MAX_SEED,
    MAX_STOP_PATTERNS,
    MAX_STOP_STRINGS,
)
from twostroke.presets import PRESETS
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.openapi_chat import CHAT_FIELDS, FLAG, TEXT, Schema
from twostroke.serve.sampler_fields import sampler_schemas


def document(routes: Iterable[BaseRoute], limits: LimitsConfig) -> dict[str, Any]:
    """The whole document, OpenAPI 3.1."""
    bodies = request_bodies(limits)
    paths: dict[str, Any] = {}
    for route in routes:
        if isinstance(route, Route) and route.include_in_schema:
            operations = {
                method.lower(): _operation(route, bodies.get(route.path) if method == "POST" else None)
                for method in sorted(route.methods or ())
                if method != "HEAD"
            }
            paths.setdefault(_plain(route.path), {}).update(operations)
    return {
        "openapi": "3.1.0",
        "info": {"title": "twostroke", "version": __version__},
        "paths": paths,
        "components": {"schemas": {"Error": ERROR}},
    }


def _plain(path: str) -> str:
    """A path without Starlette's converters."""
    return path.replace(":path}", "}")


def _operation(route: Route, body: Schema | None) -> dict[str, Any]:
    refused = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    operation: dict[str, Any] = {
        "operationId": f"{route.name}",
        "responses": {
            "200": {"description": "What was asked for."},
            "4XX": {"description": "Why not.", "content": refused},
            "503": {"description": "Not now.", "content": refused},
        },
    }
    if route.param_convertors:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in route.param_convertors
        ]
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation


ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}

TOKEN_IDS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}}


def _number(low: float, high: float) -> Schema:
    return {"type": "number", "minimum": low, "maximum": high}


def _whole(low: int, high: int | None = None) -> Schema:
    return {"type": "integer", "minimum": low} | ({} if high is None else {"maximum": high})


def _one_or_many(value: Schema, *, most: int) -> Schema:
    return {"anyOf": [value, {"type": "array", "items": value, "maxItems": most}]}


def _body(fields: dict[str, Schema], *, required: tuple[str, ...] = ()) -> Schema:
    """Only these fields; those that may be left out may be null."""
    properties = {
        name: schema if name in required else {"anyOf": [schema, {"type": "null"}]} for name, schema in fields.items()
    }
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def request_bodies(limits: LimitsConfig) -> dict[str, Schema]:
    """The body of every route that takes one."""
    common = _answer_fields(limits)
    chat = {
        **CHAT_FIELDS,
        "include_reasoning": FLAG,
        "logprobs": FLAG,
        "top_logprobs": _whole(0, MAX_LOGPROBS),
    }
    prompts = [TEXT, TOKEN_IDS | {"minItems": 1}]
    completion = {
        "prompt": {"anyOf": [*prompts, *({"type": "array", "items": each, "minItems": 1} for each in prompts)]},
        "logprobs": _whole(0, MAX_LOGPROBS),
        "echo": FLAG,
        "best_of": _whole(1, limits.max_choices),
    }
    return {
        "/v1/chat/completions": _body({**common, **chat, **HARMLESS_FIELDS}, required=("model", "messages")),
        "/v1/completions": _body({**common, **completion, **HARMLESS_FIELDS}, required=("model", "prompt")),
        "/tokenize": _body({"model": TEXT, "prompt": TEXT, **CHAT_FIELDS, "return_token_strs": FLAG}),
        "/detokenize": _body({"model": TEXT, "tokens": TOKEN_IDS}, required=("tokens",)),
    }


HARMLESS_FIELDS: dict[str, Schema] = {
    "user": TEXT,
    "safety_identifier": TEXT,
    "prompt_cache_key": TEXT,
    "metadata": {"type": "object"},
    "store": {"const": False},
    "service_tier": {"enum": ["auto", "default"]},
    "modalities": {"const": ["text"]},
    "suffix": {"const": ""},
}


def _answer_fields(limits: LimitsConfig) -> dict[str, Schema]:
    """What both of OpenAI's routes take."""
    return {
        "model": TEXT,
        "max_tokens": _whole(0),  # 0 scores a prompt alone
        "max_completion_tokens": _whole(0),
        "min_tokens": _whole(0),
        "temperature": {"type": "number", "minimum": 0},
        "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "top_k": _whole(-1),
        "min_p": _number(0, 1),
        "repetition_penalty": {"type": "number", "exclusiveMinimum": 0},
        "presence_penalty": _number(-2, 2),
        "frequency_penalty": _number(-2, 2),
        **sampler_schemas(),
        "logit_bias": {
            "type": "object",
            "maxProperties": MAX_BIASED_TOKENS,
            "additionalProperties": _number(-MAX_LOGIT_BIAS, MAX_LOGIT_BIAS),
        },
        "seed": _whole(0, MAX_SEED),
        "n": _whole(1, limits.max_choices),
        "stop": _one_or_many(TEXT, most=MAX_STOP_STRINGS),
        "stop_regex": _one_or_many(TEXT, most=MAX_STOP_PATTERNS),
        "stop_token_ids": TOKEN_IDS | {"maxItems": limits.max_stop_ids},
        "include_stop_str_in_output": FLAG,
        "ignore_eos": FLAG,
        "stream": FLAG,
        "stream_options": _body(
            {"include_usage": FLAG, "continuous_usage_stats": FLAG, "include_progress": FLAG},
        ),
        "response_format": RESPONSE_FORMAT,
        "structured_outputs": STRUCTURED_OUTPUTS,
        "ledger": FLAG,
        "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": limits.max_timeout_s},
        "cache_salt": TEXT,
        "prompt_logprobs": _whole(0, MAX_LOGPROBS),
        "preset": {"enum": [each.name for each in PRESETS]},
        "use_beam_search": FLAG,
        "beam_width": _whole(1, limits.max_choices),
        "length_penalty": _number(-10, 10),
        "early_stopping": {"enum": [True, False, "never"]},
    }


SCHEMA_OR_ITS_TEXT: Schema = {"anyOf": [{"type": "object"}, TEXT]}
RESPONSE_FORMAT: Schema = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {"enum": ["text", "json_object", "json_schema"]},
        "json_schema": _body(
            {"name": TEXT, "description": TEXT, "strict": FLAG, "schema": SCHEMA_OR_ITS_TEXT}, required=("schema",)
        ),
    },
    "additionalProperties": False,
}
STRUCTURED_OUTPUTS: Schema = _body(
    {
        "json": SCHEMA_OR_ITS_TEXT,
        "regex": TEXT,
        "choice": {"type": "array", "items": TEXT, "minItems": 1},
        "grammar": TEXT,
    }
)
