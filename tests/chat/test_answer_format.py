"""A family is known by the marks its template spells."""

import pytest

from tests.chat import templates
from twostroke.chat.answer_format import (
    GRANITE,
    HERMES,
    LLAMA,
    MISTRAL,
    MISTRAL_NAMED,
    NEMOTRON,
    PHI,
    AnswerFormat,
    CallFormat,
    ThinkFormat,
    answer_format,
)


@pytest.mark.parametrize(
    ("template", "calls"),
    [
        (templates.HERMES, HERMES),
        (templates.THINKING, HERMES),
        (templates.LLAMA, LLAMA),
        (templates.MISTRAL, MISTRAL),
        (templates.MISTRAL_NAMED, MISTRAL_NAMED),
        (templates.GRANITE, GRANITE),
        (templates.GRANITE + "<|/tool_call|>", PHI),
        (templates.NEMOTRON, NEMOTRON),
        (templates.PLAIN, None),
        (None, None),
        ("<tool_call>\n<function=f>\n<parameter=a>", None),  # XML in Hermes' marks
        ("<tool_call>f\n<arg_key>a</arg_key>", None),
    ],
)
def test_the_form_of_calls_is_found_in_the_template(template: str | None, calls: CallFormat | None) -> None:
    assert answer_format(template).calls == calls


@pytest.mark.parametrize(
    ("template", "think"),
    [
        (templates.THINKING, ThinkFormat("<think>", "</think>")),
        (templates.OPENED, ThinkFormat("<think>", "</think>")),
        ("[THINK]{{ x }}[/THINK]", ThinkFormat("[THINK]", "[/THINK]")),
        (templates.HERMES, None),
        (None, None),
    ],
)
def test_the_marks_of_reasoning_are_found_in_the_template(template: str | None, think: ThinkFormat | None) -> None:
    assert answer_format(template).think == think


def test_marks_are_all_that_a_text_must_show() -> None:
    assert AnswerFormat(PHI, ThinkFormat("a", "b")).marks == ("<|tool_call|>", "<|/tool_call|>", "a", "b")
    assert AnswerFormat(MISTRAL_NAMED).marks == ("[TOOL_CALLS]", "[ARGS]")
    assert AnswerFormat().marks == ()
