"""Tools and reasoning over a real server process, one model for each family of templates, with OpenAI's own client."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.builders_chat import write_speaker
from tests.chat import templates
from tests.e2e.server_process import ServerProcess, running_server

TWOSTROKE = ["-c", "import sys; from twostroke.cli.entry import main; sys.exit(main())"]
ARGUMENTS = '{"days": 3, "unit": "C"}'
SPEAKERS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "hermes": (
        templates.HERMES,
        f'Let me see.\n<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>',
        (),
    ),
    "mistral": (templates.MISTRAL, f'[TOOL_CALLS][{{"name": "weather", "arguments": {ARGUMENTS}}}]', ("[TOOL_CALLS]",)),
    "llama": (templates.LLAMA, f'{{"name": "weather", "parameters": {ARGUMENTS}}}', ()),
    "opened": (templates.OPENED, "so it is\n</think>\n\nThe sky", ("</think>",)),
    "plain": (templates.PLAIN.rstrip() + "?", "The sky", ()),
}
WEATHER = {
    "type": "object",
    "properties": {"days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}},
    "required": ["days", "unit"],
    "additionalProperties": False,
}
TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER, "strict": False}}]
STRICT: Any = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER, "strict": True}}]
MESSAGES: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("speakers")
    models = [
        write_speaker(folder / f"{name}.gguf", text, template=template, control=control)
        for name, (template, text, control) in SPEAKERS.items()
    ]
    flags = [flag for model in models for flag in ("-m", str(model))]
    with running_server([*TWOSTROKE, "serve", *flags, "--port", "0", "--threads", "1"]) as one:
        yield one


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as one:
        yield one


@pytest.mark.parametrize("family", ["hermes", "mistral", "llama"])
def test_a_conversation_with_a_call_goes_on_with_its_result(client: openai.OpenAI, family: str) -> None:
    model = f"{family}.gguf"
    reply = client.chat.completions.create(model=model, messages=MESSAGES, tools=TOOLS)
    choice: Any = reply.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == ("Let me see." if family == "hermes" else None)
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("weather", ARGUMENTS)
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    more = client.chat.completions.create(model=model, messages=[*MESSAGES, choice.message, result], tools=TOOLS)
    assert more.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("family", ["hermes", "mistral", "llama"])
@pytest.mark.parametrize(("tools", "choice"), [(TOOLS, "auto"), (STRICT, "auto"), (TOOLS, "required")])
def test_a_stream_with_a_call_is_what_the_whole_reply_is(
    client: openai.OpenAI, family: str, tools: Any, choice: Any
) -> None:
    asked: dict[str, Any] = {"model": f"{family}.gguf", "messages": MESSAGES, "tools": tools, "tool_choice": choice}
    asked["parallel_tool_calls"] = False
    whole = client.chat.completions.create(**asked).choices[0]
    with client.chat.completions.stream(**asked) as stream:
        final = stream.get_final_completion().choices[0]
    assert (final.finish_reason, final.message.content or None) == (whole.finish_reason, whole.message.content)
    (one,), (other,) = final.message.tool_calls or [], whole.message.tool_calls or []
    assert one.type == other.type == "function"
    assert one.function.name == other.function.name == "weather"
    assert one.function.arguments == other.function.arguments
    assert json.loads(one.function.arguments)["unit"] in ("C", "F")


def test_arguments_of_a_held_call_come_in_pieces(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="hermes.gguf", messages=MESSAGES, tools=STRICT, tool_choice="required", stream=True
        )
    )
    deltas = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or ()]
    first, *others = deltas
    assert (first.index, first.type, first.function and first.function.name) == (0, "function", "weather")
    assert first.id
    assert len(others) > 3
    assert all(delta.id is None and delta.function and delta.function.name is None for delta in others)


def test_reasoning_stands_beside_content(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model="opened.gguf", messages=MESSAGES)
    message: Any = reply.choices[0].message
    assert (message.reasoning_content, message.content) == ("so it is", "The sky")
    assert reply.usage is not None
    assert reply.usage.completion_tokens_details is not None
    assert 0 < (reply.usage.completion_tokens_details.reasoning_tokens or 0) < reply.usage.completion_tokens


def test_many_at_once_each_have_their_own(server: ServerProcess) -> None:
    async def ask() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(one(client, number) for number in range(12)))

    async def one(client: openai.AsyncOpenAI, number: int) -> Any:
        model, choice = f"{list(SPEAKERS)[number % 3]}.gguf", ("auto", "required")[number % 2]
        asked: dict[str, Any] = {"model": model, "messages": MESSAGES, "tools": TOOLS, "tool_choice": choice}
        stream: Any = await client.chat.completions.create(**asked, stream=True, parallel_tool_calls=False)
        text, reason = "", None
        async for chunk in stream:
            for call in chunk.choices[0].delta.tool_calls or ():
                text += call.function.arguments
            reason = chunk.choices[0].finish_reason or reason
        return json.loads(text), reason

    for arguments, reason in asyncio.run(ask()):
        assert set(arguments) == {"days", "unit"}
        assert reason == "tool_calls"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": TOOLS}, "tools"),
        ({"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}, "chat_template_kwargs.enable_thinking"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_what_the_template_does_not_take_is_a_400_before_any_event(
    client: openai.OpenAI, fields: dict[str, Any], param: str, is_stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="plain.gguf", messages=MESSAGES, stream=is_stream, **fields)
    assert refused.value.param == param


def test_a_schema_that_does_not_compile_is_a_400_by_the_name_of_tools(client: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "x"}}}}}]
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="hermes.gguf", messages=MESSAGES, tools=tools, tool_choice="required")
    assert refused.value.param == "tools"
