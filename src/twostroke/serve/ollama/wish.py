"""Ollama's two requests for an answer, read strictly: a field this server would ignore is an error that names it.

Null is absent. Called by the routes; never touches the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twostroke.chat.chat import Chat
from twostroke.chat.tools import read_tools
from twostroke.errors import ParamsError
from twostroke.params import MAX_LOGPROBS, SamplingParams
from twostroke.serve.api_error import ApiError
from twostroke.serve.body import MAX_SHOWN, cut
from twostroke.serve.fields import Fields, one_of, wrong
from twostroke.serve.harmless import Harmless, among, take_harmless
from twostroke.serve.ollama.keep_alive import take_keep_alive
from twostroke.serve.ollama.messages import NO_IMAGES, read_chat_messages
from twostroke.serve.ollama.options import Options, limit_of, read_options
from twostroke.serve.served_model import ServedModel
from twostroke.serve.structure_fields import schema_structure
from twostroke.structure import Structure, StructureKind

EFFORTS = ("low", "medium", "high")
HARMLESS = (
    Harmless("truncate", among(False), "no prompt is ever cut here, send false or leave it out"),
    Harmless("shift", among(False), "no text is ever shifted out here, send false or leave it out"),
)
HARMLESS_IN_GENERATE = (
    *HARMLESS,
    NO_IMAGES,
    Harmless("suffix", among(""), "text cannot be filled in before a suffix, leave it out"),
    Harmless("template", among(""), "the model's own template is used, send raw text with raw: true instead"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaWish:
    """One request, understood. Without a prompt the model is to be loaded, or unloaded where `keep_alive_s` is 0."""

    model: str  # its served name
    model_as_asked: str  # as the client wrote it
    prompts: tuple[Any, ...]  # one, or none
    options: Options
    is_chat: bool
    is_stream: bool
    is_raw: bool = False
    context: tuple[int, ...] = ()  # tokens of an earlier answer that this one goes on from
    keep_alive_s: float | None = None
    num_choices: int = 1
    salt: str = ""
    timeout_s: float | None = None
    structure_field: str = "format"
    wants_ledger: bool = True  # every reply tells durations

    @property
    def params(self) -> SamplingParams:
        return self.options.params

    @property
    def prompt_field(self) -> str:
        return "messages" if self.is_chat else "prompt"


def read_generate(values: Mapping[str, Any], *, model: str, defaults: SamplingParams) -> OllamaWish:
    """The body of /api/generate, for the model of that name. Raises ApiError."""
    fields = Fields(values)
    shared = _shared(fields, model=model, defaults=defaults)
    prompt, system = fields.text("prompt") or "", fields.text("system") or ""
    is_raw, context = fields.flag("raw") or False, _context(fields)
    if is_raw and (system or context):
        raise ApiError("raw is true beside system or context: a raw prompt goes to the model as it is, leave them out")
    messages = [*([{"role": "system", "content": system}] if system else []), {"role": "user", "content": prompt}]
    thought = _thought(fields)
    if is_raw and any(thought.values()):
        raise ApiError("raw is true beside think: a raw prompt goes to the model as it is, leave think out")
    take_harmless(fields, HARMLESS_IN_GENERATE)
    fields.end()
    fields.refuse_unknown()
    asked: Any = prompt if is_raw else _chat(messages=messages, **thought)
    return OllamaWish(**shared, prompts=(asked,) if prompt else (), is_chat=False, is_raw=is_raw, context=context)


def read_chat(values: Mapping[str, Any], *, model: str, defaults: SamplingParams) -> OllamaWish:
    """The body of /api/chat, for the model of that name. Raises ApiError."""
    fields = Fields(values)
    shared = _shared(fields, model=model, defaults=defaults)
    messages, tools, thought = read_chat_messages(fields), fields.array("tools"), _thought(fields)
    take_harmless(fields, HARMLESS)
    fields.end()
    fields.refuse_unknown()
    chat = _chat(messages=messages, tools=tools or [], **thought)
    return OllamaWish(**shared, prompts=(chat,) if messages else (), is_chat=True)


def _chat(*, tools: Sequence[Any] = (), **beside: Any) -> Chat:
    try:
        return Chat(tools=read_tools(tools) if tools else (), **beside)
    except ParamsError as error:
        raise ApiError(cut(str(error), 4 * MAX_SHOWN), param=error.field) from None


def _thought(fields: Fields) -> dict[str, Any]:
    """`think`: whether to think before the answer, or how much. The model's template says whether it can."""
    think = fields.take("think")
    if think is None or isinstance(think, bool):
        return {"thinks": think}
    if think not in EFFORTS:
        raise fields.wrong("think", f"true, false or {one_of(EFFORTS)}")
    return {"reasoning_effort": think}


def _shared(fields: Fields, *, model: str, defaults: SamplingParams) -> dict[str, Any]:
    """What both requests have."""
    as_asked = fields.required("model", str, "the name of a model")
    is_stream = fields.flag("stream")
    wishes = {"structure": _structure(fields), "logprobs": _num_logprobs(fields)}
    return {
        "model": model,
        "model_as_asked": as_asked,
        "is_stream": is_stream is None or is_stream,
        "keep_alive_s": take_keep_alive(fields),
        "options": read_options(fields, defaults, **wishes),
    }


def _structure(fields: Fields) -> Structure | None:
    """`format`: the word json, or a schema."""
    form = fields.take("format")
    if form is None or form == "":
        return None
    if form == "json":
        return Structure(kind=StructureKind.JSON_OBJECT)
    if not isinstance(form, dict):
        raise wrong("format", 'the word "json" or a JSON schema as an object', form)
    return schema_structure(form, place="format")


def _num_logprobs(fields: Fields) -> int | None:
    wanted, num_top = fields.flag("logprobs"), fields.whole("top_logprobs", low=0, high=MAX_LOGPROBS)
    if not wanted:
        if num_top:
            raise ApiError("top_logprobs is given without logprobs: set logprobs to true", param="top_logprobs")
        return None
    return num_top or 0


def _context(fields: Fields) -> tuple[int, ...]:
    context = fields.array("context") or []
    if set(map(type, context)) - {int}:
        raise wrong("context", "an array of token ids, as an earlier reply had it", context)
    return tuple(context)


def fitted(wish: OllamaWish, model: ServedModel) -> OllamaWish:
    """The wish with its prompt behind its `context`, and its answer as long as there is room where that was asked.

    Called beside the event loop, as it may tokenise the prompt. Raises ApiError, or what the model's door raises.
    """
    limit = limit_of(wish.options, model.context)
    is_plain = not wish.context and not wish.options.fills_context and limit == model.context
    if is_plain or not wish.prompts:
        return wish
    prompt = wish.prompts[0]
    token_ids = model.encode(prompt, after=wish.context)
    params, room = wish.params, limit - len(token_ids)
    needed = 1 if wish.options.fills_context else params.max_tokens
    if needed > room:
        raise ApiError(
            f"{len(token_ids)} prompt tokens + num_predict of {needed} = {len(token_ids) + needed}, "
            f"the context is {limit}: shorten the prompt, lower num_predict or raise num_ctx",
            param=wish.prompt_field,
            code="context_length_exceeded",
        )
    if wish.options.fills_context:
        params = replace(params, max_tokens=room)
    return replace(
        wish,
        prompts=(token_ids,) if wish.context else wish.prompts,
        options=replace(wish.options, params=params),
    )
