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
    MAX_STOP_SIZE,
    MAX_STOP_STRINGS,
)
from twostroke.presets import PRESETS
from twostroke.serve.api_error import OLLAMA_PATHS
from twostroke.serve.embeddings import FORMATS, MAX_DIMENSIONS
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.ollama.openapi import OLLAMA_ERROR, ollama_bodies
from twostroke.serve.openapi_chat import CHAT_FIELDS, FLAG, TEXT, Schema
from twostroke.serve.openapi_parts import TOKEN_IDS, body_of, number, one_or_many, whole
from twostroke.serve.sampler_fields import sampler_schemas


def document(routes: Iterable[BaseRoute], limits: LimitsConfig) -> dict[str, Any]:
    """The whole document, OpenAPI 3.1."""
    bodies = request_bodies(limits) | ollama_bodies()
    paths: dict[str, Any] = {}
    for route in routes:
        if isinstance(route, Route) and route.include_in_schema:
            operations = {
                method.lower(): _operation(route, bodies.get(route.path) if method != "GET" else None)
                for method in sorted(route.methods or ())
                if method != "HEAD"
            }
            paths.setdefault(_plain(route.path), {}).update(operations)
    return {
        "openapi": "3.1.0",
        "info": {"title": "twostroke", "version": __version__},
        "paths": paths,
        "components": {"schemas": {"Error": ERROR, "OllamaError": OLLAMA_ERROR}},
    }


def _plain(path: str) -> str:
    """A path without Starlette's converters."""
    return path.replace(":path}", "}")


def _operation(route: Route, body: Schema | None) -> dict[str, Any]:
    error = "OllamaError" if route.path.startswith(OLLAMA_PATHS) else "Error"
    refused = {"application/json": {"schema": {"$ref": f"#/components/schemas/{error}"}}}
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


def request_bodies(limits: LimitsConfig) -> dict[str, Schema]:
    """The body of every route that takes one."""
    common = _answer_fields(limits)
    chat = {
        **CHAT_FIELDS,
        "include_reasoning": FLAG,
        "logprobs": FLAG,
        "top_logprobs": whole(0, MAX_LOGPROBS),
    }
    prompts = [TEXT, TOKEN_IDS | {"minItems": 1}]
    completion = {
        "prompt": {"anyOf": [*prompts, *({"type": "array", "items": each, "minItems": 1} for each in prompts)]},
        "logprobs": whole(0, MAX_LOGPROBS),
        "echo": FLAG,
        "best_of": whole(1, limits.max_choices),
    }
    return {
        "/v1/chat/completions": body_of({**common, **chat, **HARMLESS_FIELDS}, required=("model", "messages")),
        "/v1/completions": body_of({**common, **completion, **HARMLESS_FIELDS}, required=("model", "prompt")),
        "/v1/embeddings": body_of(_embedding_fields(limits), required=("model", "input")),
        "/tokenize": body_of({"model": TEXT, "prompt": TEXT, **CHAT_FIELDS, "return_token_strs": FLAG}),
        "/detokenize": body_of({"model": TEXT, "tokens": TOKEN_IDS}, required=("tokens",)),
    }


def _embedding_fields(limits: LimitsConfig) -> dict[str, Schema]:
    prompts = [TEXT, TOKEN_IDS | {"minItems": 1}]
    several = [{"type": "array", "items": each, "minItems": 1, "maxItems": limits.max_inputs} for each in prompts]
    return {
        "model": TEXT,
        "input": {"anyOf": [*prompts, *several]},
        "encoding_format": {"enum": list(FORMATS)},
        "dimensions": whole(1, MAX_DIMENSIONS),
        "user": TEXT,
        "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": limits.max_timeout_s},
        "cache_salt": TEXT,
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
        "max_tokens": whole(0),  # 0 scores a prompt alone
        "max_completion_tokens": whole(0),
        "min_tokens": whole(0),
        "temperature": {"type": "number", "minimum": 0},
        "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "top_k": whole(-1),
        "min_p": number(0, 1),
        "repetition_penalty": {"type": "number", "exclusiveMinimum": 0},
        "presence_penalty": number(-2, 2),
        "frequency_penalty": number(-2, 2),
        **sampler_schemas(),
        "logit_bias": {
            "type": "object",
            "maxProperties": MAX_BIASED_TOKENS,
            "additionalProperties": number(-MAX_LOGIT_BIAS, MAX_LOGIT_BIAS),
        },
        "seed": whole(0, MAX_SEED),
        "n": whole(1, limits.max_choices),
        "stop": one_or_many(TEXT | {"maxLength": MAX_STOP_SIZE}, most=MAX_STOP_STRINGS),
        "stop_regex": one_or_many(TEXT, most=MAX_STOP_PATTERNS),
        "stop_token_ids": TOKEN_IDS | {"maxItems": limits.max_stop_ids},
        "include_stop_str_in_output": FLAG,
        "ignore_eos": FLAG,
        "stream": FLAG,
        "stream_options": body_of(
            {"include_usage": FLAG, "continuous_usage_stats": FLAG, "include_progress": FLAG},
        ),
        "response_format": RESPONSE_FORMAT,
        "structured_outputs": STRUCTURED_OUTPUTS,
        "ledger": FLAG,
        "timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": limits.max_timeout_s},
        "cache_salt": TEXT,
        "prompt_logprobs": whole(0, MAX_LOGPROBS),
        "preset": {"enum": [each.name for each in PRESETS]},
        "use_beam_search": FLAG,
        "beam_width": whole(1, limits.max_choices),
        "length_penalty": number(-10, 10),
        "early_stopping": {"enum": [True, False, "never"]},
    }


SCHEMA_OR_ITS_TEXT: Schema = {"anyOf": [{"type": "object"}, TEXT]}
RESPONSE_FORMAT: Schema = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {"enum": ["text", "json_object", "json_schema"]},
        "json_schema": body_of(
            {"name": TEXT, "description": TEXT, "strict": FLAG, "schema": SCHEMA_OR_ITS_TEXT}, required=("schema",)
        ),
    },
    "additionalProperties": False,
}
STRUCTURED_OUTPUTS: Schema = body_of(
    {
        "json": SCHEMA_OR_ITS_TEXT,
        "regex": TEXT,
        "choice": {"type": "array", "items": TEXT, "minItems": 1},
        "grammar": TEXT,
    }
)
