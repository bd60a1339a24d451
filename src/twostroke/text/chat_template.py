"""Conversations to prompts with a model's own chat template.

`render` gives the text, `render_prompt` the token ids, `render_pieces` what they are made of: control
tokens where the template wrote them, plain text wherever a user did. Every door that takes messages
renders here. It keeps no conversation.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import jinja2

from twostroke.core.clock import local_time
from twostroke.errors import ChatTemplateError, PromptError
from twostroke.text.template_limits import BUDGET, RenderBudget
from twostroke.text.template_marks import CUT_MARK, ConstantMarker, MarkedText, MarkTable, without_marks
from twostroke.text.template_sandbox import TemplateRaisedError, TemplateSandbox
from twostroke.text.tokenizer import Tokenizer

# Roles whose letters may complete a control literal the template spells around them.
KNOWN_ROLES = frozenset(
    ("system", "developer", "user", "assistant", "model", "tool", "function", "ipython", "environment")
)
NO_TEMPLATE = (
    "this model has no chat template; send a raw prompt instead: LLM.generate, `twostroke run --raw` or /v1/completions"
)


class ChatTemplate:
    """One compiled template with the tokenizer it writes for.

    Raises ChatTemplateError with line and construct where the source does not compile; `source` None
    is a model without a template, and only rendering raises, with the text `why_none`.
    """

    def __init__(
        self,
        source: str | None,
        *,
        tokenizer: Tokenizer,
        now: Callable[[], datetime] = local_time,
        why_none: str = NO_TEMPLATE,
    ) -> None:
        self._tokenizer = tokenizer
        self._table = MarkTable(tokenizer.control)
        self._why_none = why_none
        self.source = source
        self._sandbox = TemplateSandbox(now=now, unmark=self._table.unmark)
        self._template = None if source is None else self._compile(source)

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names the template reads beside those every sandbox has."""
        return frozenset() if self.source is None else self._sandbox.variables(without_marks(self.source))

    def _compile(self, source: str) -> jinja2.Template:
        try:
            return self._sandbox.compiled(without_marks(source), ConstantMarker(self._table).rewrite)
        except jinja2.TemplateSyntaxError as error:
            line = without_marks(source).splitlines()[error.lineno - 1 : error.lineno]
            shown = f": {line[0].strip()[:120]!r}" if line else ""
            raise ChatTemplateError(f"the chat template, line {error.lineno}: {error.message}{shown}") from None
        except ChatTemplateError:
            raise
        except RecursionError:
            raise ChatTemplateError("the chat template is nested too deeply to compile") from None
        except Exception as error:  # noqa: BLE001 - jinja2 leaves some mistakes to Python's compiler, lines are its own
            raise ChatTemplateError(f"the chat template does not compile: {getattr(error, 'msg', error)}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> str:
        """The prompt as text, as the template's author sees it.

        `add_generation_prompt` opens the answer's turn (the default); `continue_final_message` leaves the
        last message open instead, and the prompt ends with its text. `variables` reach the template as
        they are. Raises PromptError for messages that are none, ChatTemplateError where the template
        refuses, fails or breaks a limit.
        """
        return self._table.unmark(
            self._render_marked(messages, tools, add_generation_prompt, continue_final_message, variables)
        )

    def render_prompt(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        """The prompt as token ids; parameters as in `render`. It has one BOS, whoever wrote it."""
        return self._tokenizer.encode_pieces(self.render_pieces(messages, **options))

    def render_pieces(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> list[str | int]:
        """The prompt as plain texts and control ids, for `Tokenizer.encode_pieces`; parameters as in `render`."""
        marked = self._render_marked(messages, tools, add_generation_prompt, continue_final_message, variables)
        pieces = self._table.split(marked)
        if all(piece == "" for piece in pieces):
            raise PromptError("the chat template made an empty prompt of these messages", field="messages")
        return pieces

    def end_ids(self) -> frozenset[int]:
        """Every id that ends an answer: the vocabulary's own and what the template closes a turn with."""
        closing = self._closing_id()
        return self._tokenizer.end_ids | ({closing} if closing is not None else set())

    def _closing_id(self) -> int | None:
        """The first control token after the text of a finished answer, found by rendering one."""
        probe = "zqxj vkwy"
        messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": probe}]
        try:
            marked = self._render_marked(messages, None, False, False, {})
        except ChatTemplateError:
            return None
        _, found, after = marked.rpartition(probe)
        pieces = self._table.split(after) if found else []
        return next((piece for piece in pieces if isinstance(piece, int)), None)

    def _render_marked(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool | None,
        continue_final_message: bool,
        variables: Mapping[str, Any],
    ) -> str:
        if self._template is None:
            raise ChatTemplateError(self._why_none)
        if continue_final_message and add_generation_prompt:
            raise ChatTemplateError(
                "add_generation_prompt and continue_final_message are both true: a prompt either opens a new turn or "
                "leaves the last one open; set one of them to false"
            )
        conversation = _checked_messages(messages)
        values = {
            **self._special_literals(),
            "documents": None,
            **{name: _without_marks(value) for name, value in variables.items()},
            "messages": _opened(conversation) if continue_final_message else conversation,
            "tools": _without_marks(tools),
            "add_generation_prompt": not continue_final_message
            if add_generation_prompt is None
            else add_generation_prompt,
            BUDGET: RenderBudget(),
        }
        for message in conversation:
            if message["role"] in KNOWN_ROLES:
                message["role"] = MarkedText(message["role"], marked=self._table.mark_all(message["role"]))
        try:
            marked = _run(self._template, values, roles=[without_marks(message["role"]) for message in messages])
        except ChatTemplateError as error:
            raise ChatTemplateError(without_marks(self._table.unmark(str(error)))) from None
        return _cut(marked) if continue_final_message else marked

    def _special_literals(self) -> dict[str, MarkedText]:
        special, tokens = self._tokenizer.special, self._tokenizer.vocabulary.tokens
        ids = {
            "bos_token": special.bos_id,
            "eos_token": special.eos_id,
            "unk_token": special.unk_id,
            "pad_token": special.pad_id,
        }
        return {
            name: MarkedText(tokens[token_id], marked=self._table.mark(tokens[token_id]))
            for name, token_id in ids.items()
            if token_id is not None
        }


def _run(template: jinja2.Template, values: dict[str, Any], *, roles: list[str]) -> str:
    try:
        return template.render(values)
    except TemplateRaisedError as error:
        problem = f"{error} (said by the chat template; roles: {', '.join(roles)})"
    except ChatTemplateError as error:
        problem = str(error)
    except RecursionError:
        problem = "the chat template calls itself too deeply"
    except Exception as error:  # noqa: BLE001 - whatever a template does, its request alone fails
        problem = f"the chat template, {_place(error)}: {type(error).__name__}: {error}"
    raise ChatTemplateError(problem)


def _place(error: BaseException) -> str:
    """Line of the template that was running; jinja2 writes it into the traceback."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line}" if line else "line unknown"


def _checked_messages(messages: object) -> list[dict[str, Any]]:
    """Own copies of the messages, safe to mark."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise PromptError(
            f"messages is of type {type(messages).__name__}: it must be a list of messages", field="messages"
        )
    if not messages:
        raise PromptError("messages is empty: a conversation needs at least one message", field="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise PromptError(f"messages[{index}] must be an object with a text field 'role'", field="messages")
    return [_without_marks(message) for message in messages]


def _without_marks(value: Any) -> Any:
    """A copy of plain data with lone surrogates replaced in every string and key."""
    if isinstance(value, str):
        return without_marks(value)
    if isinstance(value, Mapping):
        return {_without_marks(key): _without_marks(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_marks(item) for item in value]
    return value


def _opened(conversation: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation with the cut mark at the end of its last text."""
    last = conversation[-1]
    content = last.get("content")
    if isinstance(content, str):
        last["content"] = content + CUT_MARK
        return conversation
    texts = [part for part in content or () if isinstance(part, dict) and isinstance(part.get("text"), str)]
    if not texts:
        raise PromptError("continue_final_message needs a last message with text to continue", field="messages")
    texts[-1]["text"] += CUT_MARK
    return conversation


def _cut(marked: str) -> str:
    before, found, _ = marked.rpartition(CUT_MARK)
    if not found:
        raise ChatTemplateError(
            "the chat template drops the last message: continue_final_message has nothing to continue"
        )
    return before
