"""Conversations made ready for a loaded model, and what it answers: tools, calls, reasoning, through LLM's own door."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.builders_chat import write_speaker
from tests.builders_llm import open_llm
from tests.chat import templates
from twostroke.chat.answer import ChatAnswer, ToolCall, answer_of
from twostroke.chat.chat import Chat
from twostroke.core.report import Result
from twostroke.core.sequence import FinishReason
from twostroke.errors import CapacityError, ChatTemplateError, ParamsError, PromptError
from twostroke.params import SamplingParams
from twostroke.structure import Structure, StructureKind

USER = {"role": "user", "content": "hi"}
WEATHER = {
    "type": "object",
    "properties": {"days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}},
    "required": ["days", "unit"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "tells", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "stop"}},
]
CALL = ToolCall("weather", '{"days": 3, "unit": "C"}')
ARGUMENTS = {"days": 3, "unit": "C"}
REQUIRED = {"type": "function", "function": {"name": "weather"}}


def said(tmp_path: Path, text: str, *, template: str, control: tuple[str, ...] = (), **asked: Any) -> Result:
    """What `chat` makes of a model that says this text."""
    path = write_speaker(tmp_path / "speaker.gguf", text, template=template, control=control)
    with open_llm(path) as llm:
        return llm.chat([USER], asked.pop("params", None), **asked)


@pytest.mark.parametrize(
    ("template", "text", "control"),
    [
        (templates.HERMES, f'<tool_call>\n{{"name": "weather", "arguments": {CALL.arguments}}}\n</tool_call>', ()),
        (templates.LLAMA, f'{{"name": "weather", "parameters": {CALL.arguments}}}', ()),
        (templates.LLAMA, f'<|python_tag|>{{"name": "weather", "parameters": {CALL.arguments}}}', ("<|python_tag|>",)),
        (
            templates.MISTRAL,
            f'[TOOL_CALLS][{{"name": "weather", "arguments": {CALL.arguments}}}]',
            ("[TOOL_CALLS]",),
        ),
        (templates.MISTRAL_NAMED, f"[TOOL_CALLS]weather[ARGS]{CALL.arguments}", ("[TOOL_CALLS]", "[ARGS]")),
        (
            templates.GRANITE,
            f'<|tool_call|>[{{"name": "weather", "arguments": {CALL.arguments}}}]',
            ("<|tool_call|>",),
        ),
    ],
)
def test_calls_are_read_whether_marks_are_letters_or_control_tokens(
    tmp_path: Path, template: str, text: str, control: tuple[str, ...]
) -> None:
    result = said(tmp_path, text, template=template, control=control, tools=TOOLS)
    assert result.answer == ChatAnswer(tool_calls=(CALL,))
    assert result.text == text
    assert result.finish_reason is FinishReason.STOP


def test_an_answer_without_tools_hides_control_tokens_and_leaves_other_marks_as_they_are(tmp_path: Path) -> None:
    text = f'[TOOL_CALLS][{{"name": "weather", "arguments": {CALL.arguments}}}]'
    for asked in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        result = said(tmp_path, text, template=templates.MISTRAL, control=("[TOOL_CALLS]",), **asked)
        assert result.answer == ChatAnswer(content=text.removeprefix("[TOOL_CALLS]"))


ALL_TEMPLATES = [
    (templates.HERMES, ()),
    (templates.LLAMA, ("<|python_tag|>",)),
    (templates.MISTRAL, ("[TOOL_CALLS]",)),
    (templates.MISTRAL_NAMED, ("[TOOL_CALLS]", "[ARGS]")),
    (templates.GRANITE, ("<|tool_call|>",)),
    (templates.NEMOTRON, ()),
]


@pytest.mark.parametrize(("template", "control"), ALL_TEMPLATES)
@pytest.mark.parametrize("choice", ["required", REQUIRED])
def test_a_required_call_follows_its_schema_whatever_the_model_would_say(
    tmp_path: Path, template: str, control: tuple[str, ...], choice: Any
) -> None:
    result = said(
        tmp_path,
        "I would rather talk about 5",
        template=template,
        control=control,
        tools=TOOLS[:1],
        tool_choice=choice,
        parallel_tool_calls=False,
        params=SamplingParams(max_tokens=200),
    )
    assert result.finish_reason is FinishReason.STOP
    assert result.answer is not None
    (call,) = result.answer.tool_calls
    assert (call.name, result.answer.content) == ("weather", "")
    arguments = json.loads(call.arguments)
    assert set(arguments) == {"days", "unit"}
    assert type(arguments["days"]) is int
    assert arguments["unit"] in ("C", "F")


@pytest.mark.parametrize(("template", "control"), ALL_TEMPLATES)
def test_a_strict_function_may_be_left_alone(tmp_path: Path, template: str, control: tuple[str, ...]) -> None:
    strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]  # type: ignore[dict-item]
    result = said(tmp_path, "I would rather talk", template=template, control=control, tools=strict)
    assert result.answer == ChatAnswer(content="I would rather talk")


def test_a_strict_call_is_mended_from_its_first_wrong_letter(tmp_path: Path) -> None:
    strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]  # type: ignore[dict-item]
    text = 'So <tool_call>\n{"name": "weather", "arguments": {"town": "x"}}\n</tool_call>'
    free = said(tmp_path, text, template=templates.HERMES, tools=TOOLS)
    assert free.answer is not None
    assert free.answer.tool_calls == (ToolCall("weather", '{"town": "x"}'),)
    held = said(tmp_path, text, template=templates.HERMES, tools=strict, params=SamplingParams(max_tokens=200))
    assert held.answer is not None
    assert held.answer.content == "So"
    (call,) = held.answer.tool_calls
    assert set(json.loads(call.arguments)) == {"days", "unit"}


# Reasoning


@pytest.mark.parametrize(
    ("template", "text", "control"),
    [
        (templates.THINKING, "<think>\nso so\n</think>\n\nThe sky", ()),
        (templates.OPENED, "so so\n</think>\n\nThe sky", ()),
        (templates.THINKING, "<think>\nso so\n</think>\n\nThe sky", ("<think>", "</think>")),
        (templates.OPENED, "so so\n</think>\n\nThe sky", ("<think>", "</think>")),
    ],
)
def test_reasoning_is_told_apart_whoever_opens_it(
    tmp_path: Path, template: str, text: str, control: tuple[str, ...]
) -> None:
    result = said(tmp_path, text, template=template, control=control)
    assert result.answer == ChatAnswer(reasoning="so so", content="The sky")


def test_a_prompt_that_closes_the_reasoning_leaves_an_answer_alone(tmp_path: Path) -> None:
    text = "x <think> y </think> z"
    for asked in ({"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}):
        assert said(tmp_path, text, template=templates.THINKING, **asked).answer == ChatAnswer(content=text)


def test_thinking_is_switched_by_the_variable_a_template_reads(tmp_path: Path) -> None:
    off, on = (
        Chat(messages=[USER], thinks=False),
        Chat(messages=[USER], thinks=True),
    )
    with open_llm(write_speaker(tmp_path / "a.gguf", "x", template=templates.THINKING)) as llm:
        assert llm.encode(off) == llm.encode(Chat(messages=[USER], variables={"enable_thinking": False}))
        assert llm.encode(on) == llm.encode(Chat(messages=[USER], variables={"enable_thinking": True}))
        assert llm.encode(on) != llm.encode(off)
    with open_llm(write_speaker(tmp_path / "b.gguf", "x", template=templates.OPENED)) as llm:
        assert llm.encode(on) == llm.encode([USER])  # it always does
        with pytest.raises(ParamsError, match="think is false: this model's chat template cannot switch"):
            llm.encode(off)


def test_a_model_without_reasoning_is_not_told_to_think(silent: Path) -> None:
    with open_llm(silent) as llm:
        assert llm.encode(Chat(messages=[USER], thinks=False)) == llm.encode([USER])
        with pytest.raises(ParamsError, match="think is true: this model's chat template knows no reasoning") as caught:
            llm.encode(Chat(messages=[USER], thinks=True))
    assert caught.value.field == "think"


@pytest.mark.parametrize(
    ("template", "text", "reasoning"),
    [
        (templates.OPENED, 'hm {"a": </think>\n{"x": 1}', 'hm {"a":'),
        (templates.THINKING, '<think>hm {"a": </think>\n{"x": 1}', 'hm {"a":'),
        (templates.THINKING, '{"x": 1}', ""),
    ],
)
def test_a_grammar_begins_after_the_reasoning(tmp_path: Path, template: str, text: str, reasoning: str) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    schema["additionalProperties"] = False
    for kind, source in ((StructureKind.JSON_SCHEMA, json.dumps(schema)), (StructureKind.REGEX, r'\{"x": [0-9]\}')):
        params = SamplingParams(max_tokens=60, structure=Structure(kind=kind, source=source))
        result = said(tmp_path, text, template=template, params=params)
        assert result.answer is not None
        assert result.answer.reasoning == reasoning
        assert set(json.loads(result.answer.content)) == {"x"}


def test_a_required_call_comes_after_the_reasoning(tmp_path: Path) -> None:
    params = SamplingParams(max_tokens=200)
    asked: Mapping[str, Any] = {"tools": TOOLS, "tool_choice": REQUIRED, "params": params}
    result = said(tmp_path, "hm so\n</think>\n\nThe sky", template=templates.OPENED, **asked)
    assert result.answer is not None
    assert result.answer.reasoning == "hm so"
    assert result.answer.tool_calls[0].name == "weather"


# What a model cannot do


@pytest.fixture
def silent(tmp_path: Path) -> Path:
    return write_speaker(tmp_path / "speaker.gguf", "The sky", template=templates.PLAIN.rstrip() + "?")


@pytest.mark.parametrize(
    ("asked", "field", "words"),
    [
        ({"tools": TOOLS}, "tools", "shows the model no tools"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs.enable_thinking", "reads no such"),
        ({"reasoning_effort": "high"}, "reasoning_effort", "no such degrees"),
        ({"reasoning_effort": "much"}, "reasoning_effort", "one of none"),
    ],
)
def test_what_the_template_does_not_take_is_refused(
    silent: Path, asked: Mapping[str, Any], field: str, words: str
) -> None:
    with open_llm(silent) as llm, pytest.raises(ParamsError, match=words) as refused:
        llm.chat([USER], **asked)
    assert refused.value.field == field


def test_no_reasoning_is_asked_of_a_model_that_does_none(silent: Path) -> None:
    with open_llm(silent) as llm:
        assert llm.chat([USER], reasoning_effort="none").text == "The sky"
        assert llm.chat([USER], tools=TOOLS, tool_choice="none").text == "The sky"


def test_earlier_calls_a_template_would_drop_are_refused(silent: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    with open_llm(silent) as llm, pytest.raises(PromptError, match="does not show earlier calls") as refused:
        llm.chat([USER, {"role": "assistant", "content": None, "tool_calls": [call]}])
    assert refused.value.field == "messages[1].tool_calls"


@pytest.mark.parametrize("wish", [{"structure": Structure(kind=StructureKind.JSON_OBJECT)}])
def test_an_answer_has_one_form(tmp_path: Path, wish: Mapping[str, Any]) -> None:
    with pytest.raises(ParamsError) as refused:
        said(tmp_path, "x", template=templates.HERMES, tools=TOOLS, params=SamplingParams(**wish))
    assert refused.value.field == "structure"


@pytest.mark.parametrize("wish", [{"ignore_eos": True}, {"min_tokens": 3}])
def test_a_held_call_says_itself_where_it_ends(tmp_path: Path, wish: Mapping[str, Any]) -> None:
    asked: Mapping[str, Any] = {"tools": TOOLS, "tool_choice": "required", "params": SamplingParams(**wish)}
    with pytest.raises(ParamsError) as refused:
        said(tmp_path, "x", template=templates.HERMES, **asked)
    assert refused.value.field in wish


def test_a_schema_the_compiler_refuses_is_refused_by_the_name_of_tools(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "strng"}}}}}]
    with pytest.raises(ParamsError) as refused:
        said(tmp_path, "x", template=templates.HERMES, tools=tools, tool_choice="required")
    assert refused.value.field == "tools"


def test_a_model_without_a_template_says_what_to_do_instead(tmp_path: Path) -> None:
    with pytest.raises(ChatTemplateError, match="no chat template"):
        said(tmp_path, "x", template="", tools=TOOLS)


# History


CALL_MESSAGE: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": CALL.arguments}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "content": "rain"}


@pytest.mark.parametrize("template", [pair[0] for pair in ALL_TEMPLATES])
def test_earlier_calls_and_results_reach_the_model(tmp_path: Path, template: str) -> None:
    path = write_speaker(tmp_path / "speaker.gguf", "The sky", template=template)
    with open_llm(path) as llm:
        text = llm.decode(llm.encode([USER, CALL_MESSAGE, RESULT]))
        as_object = {**CALL_MESSAGE["tool_calls"][0], "function": {"name": "weather", "arguments": ARGUMENTS}}
        assert llm.encode([USER, {**CALL_MESSAGE, "tool_calls": [as_object]}, RESULT]) == llm.encode(
            [USER, CALL_MESSAGE, RESULT]
        )
    assert text.count("weather") == text.count("rain") == 1
    assert CALL.arguments in text
    assert "None" not in text


@pytest.mark.parametrize("arguments", ["no json", "[1]", 5, None, '{"a": ' + "[" * 500 + "]" * 500 + "}"])
def test_arguments_that_are_no_object_are_refused_at_their_place(tmp_path: Path, arguments: Any) -> None:
    path = write_speaker(tmp_path / "speaker.gguf", "The sky", template=templates.HERMES)
    call = {"id": "1", "function": {"name": "f", "arguments": arguments}}
    with open_llm(path) as llm, pytest.raises(PromptError) as refused:
        llm.chat([USER, {"role": "assistant", "content": None, "tool_calls": [call]}])
    assert refused.value.field == "messages[1].tool_calls[0].function.arguments"


def test_a_continued_message_goes_on_where_it_ended(tmp_path: Path) -> None:
    template = templates.HERMES
    path = write_speaker(tmp_path / "speaker.gguf", "The sky", template=template)
    with open_llm(path) as llm:
        messages = [USER, {"role": "assistant", "content": "So?"}]
        result = llm.chat(messages, continue_final_message=True)
        assert result.answer == ChatAnswer(content="The sky")
        with pytest.raises(ParamsError, match="chat_template_kwargs"):
            llm.chat(messages, chat_template_kwargs={"add_generation_prompt": True})


def test_a_held_call_is_the_same_with_drafts(tmp_path: Path) -> None:
    """P5"""
    path = write_speaker(tmp_path / "speaker.gguf", "The sky", template=templates.HERMES)
    found = []
    for speculate in (None, "ngram"):
        with open_llm(path, speculate=speculate) as llm:
            params = SamplingParams(max_tokens=200)
            found.append(llm.chat([USER], params, tools=TOOLS, tool_choice=REQUIRED, parallel_tool_calls=False))
    assert found[0].text == found[1].text
    assert found[0].answer == found[1].answer
    assert found[0].finish_reason is FinishReason.STOP


def test_a_stream_is_read_as_it_comes(tmp_path: Path) -> None:
    path = write_speaker(tmp_path / "speaker.gguf", "<think>\nso\n</think>\n\nThe sky", template=templates.THINKING)
    with open_llm(path) as llm, llm.stream(Chat.read([USER])) as events:
        reader = events.new_reader()
        pieces = [piece for event in events for piece in reader.feed(event.text)]
        assert answer_of([*pieces, *reader.end()]) == ChatAnswer(reasoning="so", content="The sky")


@pytest.mark.parametrize("ends", [{}, {"stop": ("days",)}, {"stop_regex": (r"\d",)}, {"stop_token_ids": (5,)}])
def test_a_call_that_other_ends_may_cut_is_told_when_it_is_complete_not_before(
    tmp_path: Path, ends: dict[str, Any]
) -> None:
    path = write_speaker(tmp_path / "speaker.gguf", "x", template=templates.HERMES)
    with open_llm(path) as llm:
        chat = Chat.read([USER], tools=TOOLS, tool_choice=REQUIRED)
        prepared = llm._chat_prompts.prepare(chat)
        reader = prepared.new_reader(SamplingParams(**ends))
        begun = '<tool_call>{"name": "weather", "arguments": {"'
        assert bool(reader.feed(begun)) is (not ends)
        answer = answer_of(reader.end())
        assert answer.content == (begun if ends else "")


def test_what_does_not_fit_for_its_tools_is_told_so(tmp_path: Path) -> None:
    path = write_speaker(tmp_path / "speaker.gguf", "sunny", template=templates.HERMES)
    call = {"type": "function", "function": {"name": "weather", "arguments": '{"days":  3, "unit": "C"}'}}
    past: list[dict[str, Any]] = [
        USER,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "warm"},
        USER,
    ]
    with open_llm(path) as llm:
        num_bare, num_both, num_past = (
            len(llm.encode(Chat.read(messages, tools=tools)))
            for messages, tools in (([USER], None), ([USER], TOOLS), (past, None))
        )
        num_hi, *nums_past = (
            len(llm.tokenizer.encode(text, add_bos=False))
            for text in ("hi", "hi", "weather", "days", "unit", "C", "warm")
        )
    with open_llm(path, context=num_both) as llm, pytest.raises(CapacityError) as refused:
        llm.chat([USER], SamplingParams(max_tokens=4), tools=TOOLS)
    assert f"({num_bare - num_hi} of the chat template, {num_both - num_bare} of the tools)" in str(refused.value)
    assert ": shorten the messages or the tools by 4 tokens or more" in str(refused.value)
    with open_llm(path, context=num_past) as llm, pytest.raises(CapacityError) as refused:
        llm.chat(past, SamplingParams(max_tokens=4))
    num_framing = num_past - num_hi - sum(nums_past)
    assert f"{num_past} prompt tokens ({num_framing} of the chat template) + " in str(refused.value)
    assert ": shorten the prompt by 4 tokens or more" in str(refused.value)
    with open_llm(path, context=10) as llm:
        with pytest.raises(CapacityError, match="the context is 10: shorten the messages or the tools, by "):
            llm.chat([USER], SamplingParams(max_tokens=4), tools=TOOLS)
        with pytest.raises(CapacityError, match="the context is 10: shorten the prompt, by "):
            llm.chat([{"role": "user", "content": "x" * 999}], SamplingParams(max_tokens=4))
