"""What templates do with tools, calls and their results, found by rendering."""

import pytest

from tests.chat import templates
from tests.text.text_builders import byte_level_tokenizer
from twostroke.text.chat_template import ChatTemplate
from twostroke.text.template_traits import CallStyle, TemplateTraits

OBJECTS = CallStyle(has_objects=True, has_null=True)


def traits_of(source: str | None) -> TemplateTraits:
    return TemplateTraits(ChatTemplate(source, tokenizer=byte_level_tokenizer()))


@pytest.mark.parametrize(
    ("source", "shows_tools", "style", "keeps_results"),
    [
        (templates.HERMES, True, OBJECTS, True),
        (templates.THINKING, True, OBJECTS, True),
        (templates.LLAMA, True, OBJECTS, True),
        (templates.MISTRAL, True, OBJECTS, True),
        (templates.MISTRAL_NAMED, True, OBJECTS, True),
        (templates.GRANITE, True, OBJECTS, True),
        (templates.OPENED, True, OBJECTS, True),
        (templates.TEXT_ARGUMENTS, True, CallStyle(has_objects=False, has_null=True), True),
        (templates.PLAIN, False, None, True),
        ("{{ messages[0].content }}", False, None, False),
        ("{{ raise_exception('no') }}", False, None, False),
        (None, False, None, False),
    ],
)
def test_templates_give_away_what_they_do(
    source: str | None, shows_tools: bool, style: CallStyle | None, keeps_results: bool
) -> None:
    traits = traits_of(source)
    assert (traits.shows_tools, traits.call_style, traits.keeps_results) == (shows_tools, style, keeps_results)


def test_null_content_is_never_written_as_a_word() -> None:
    source = templates.PLAIN.replace("\n", "{{ message.tool_calls }}\n").replace(
        "{{ message.tool_calls }}", "{% for c in message.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}"
    )
    assert traits_of(source).call_style == CallStyle(has_objects=True, has_null=False)


def test_a_message_with_calls_is_written_as_the_template_wants_it() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"ä": 1}}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    assert OBJECTS.message(message) == {"role": "assistant", "content": None, "tool_calls": [call]}
    text = CallStyle(has_objects=False, has_null=False).message({**message, "content": None})
    assert text["content"] == ""
    assert text["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"ä": 1}'}
    assert OBJECTS.message({**message, "content": "so"})["content"] == "so"


def test_variables_are_those_a_template_reads_and_does_not_set() -> None:
    source = (
        "{% set own = 1 %}{{ own }}{% if enable_thinking %}{{ strftime_now('%Y') }}{{ messages[0].role }}{% endif %}"
    )
    chat = ChatTemplate(source, tokenizer=byte_level_tokenizer())
    assert chat.variables == {"enable_thinking", "messages"}
    assert ChatTemplate(None, tokenizer=byte_level_tokenizer()).variables == frozenset()
