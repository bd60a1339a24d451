"""What the OpenAPI document tells of Ollama's routes: their bodies and the form of their errors. Read by `openapi`."""

from twostroke.params import MAX_LOGPROBS, MAX_SEED, MAX_STOP_STRINGS
from twostroke.serve.ollama.options import HARMLESS_OPTIONS
from twostroke.serve.openapi_chat import CHAT_FIELDS, FLAG, TEXT, Schema
from twostroke.serve.openapi_parts import TOKEN_IDS, body_of, number, whole

OLLAMA_ERROR: Schema = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
ANYTHING: Schema = {}
NONE_OF_IT: Schema = {"const": []}
NO_TEXT: Schema = {"const": ""}
WHOLE: Schema = {"type": "integer"}
KEEP_ALIVE: Schema = {"anyOf": [{"type": "number"}, TEXT]}
MESSAGES: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["role"],
        "properties": {
            "role": {"enum": ["system", "user", "assistant", "tool"]},
            "content": {"anyOf": [TEXT, {"type": "null"}]},
            "thinking": {"anyOf": [TEXT, {"type": "null"}]},
            "tool_name": {"anyOf": [TEXT, {"type": "null"}]},
            "images": {"anyOf": [NONE_OF_IT, {"type": "null"}]},
        },
    },
}


def ollama_bodies() -> dict[str, Schema]:
    """The body of every route that takes one."""
    answer = {
        "model": TEXT,
        "stream": FLAG,
        "format": {"anyOf": [{"enum": ["", "json"]}, {"type": "object"}]},
        "options": _options(),
        "keep_alive": KEEP_ALIVE,
        "think": {"anyOf": [FLAG, {"enum": ["low", "medium", "high"]}]},
        "logprobs": FLAG,
        "top_logprobs": whole(0, MAX_LOGPROBS),
        "truncate": {"const": False},
        "shift": {"const": False},
    }
    generate = {
        "prompt": TEXT,
        "system": TEXT,
        "raw": FLAG,
        "context": TOKEN_IDS,
        "images": NONE_OF_IT,
        "suffix": NO_TEXT,
        "template": NO_TEXT,
    }
    tools = CHAT_FIELDS["tools"] | {"minItems": 0}
    named = {"model": TEXT, "name": TEXT}
    embedded = {**named, "options": {"const": {}}, "keep_alive": KEEP_ALIVE}
    texts = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
    overrides = {"system": NO_TEXT, "template": NO_TEXT, "options": {"const": {}}}
    return {
        "/api/generate": body_of({**answer, **generate}, required=("model",)),
        "/api/chat": body_of({**answer, "messages": MESSAGES, "tools": tools}, required=("model",)),
        "/api/embed": body_of({**embedded, "input": texts, "truncate": {"const": False}, "dimensions": whole(1)}),
        "/api/embeddings": body_of({**embedded, "prompt": TEXT}),
        "/api/show": body_of({**named, "verbose": FLAG, **overrides}),
        "/api/pull": body_of({**named, "stream": FLAG, "insecure": {"const": False}}),
        "/api/delete": body_of(named),
    }


def _options() -> Schema:
    """Every option that may be said."""
    penalty = {"type": "number", "exclusiveMinimum": 0}
    honoured = {
        "temperature": {"type": "number", "minimum": 0},
        "top_k": whole(-1),
        "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "min_p": number(0, 1),
        "typical_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "repeat_penalty": penalty,
        "repeat_last_n": whole(-1),
        "presence_penalty": number(-2, 2),
        "frequency_penalty": number(-2, 2),
        "seed": {"type": "integer", "maximum": MAX_SEED},
        "num_predict": {"anyOf": [whole(1), {"enum": [-1, -2]}]},
        "num_ctx": whole(1),
        "stop": {"type": "array", "items": TEXT, "maxItems": MAX_STOP_STRINGS},
        "mirostat": {"enum": [0, 2]},
        "mirostat_tau": penalty,
        "mirostat_eta": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    }
    return body_of(honoured | {option.name: ANYTHING for option in HARMLESS_OPTIONS})
