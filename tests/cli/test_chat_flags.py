"""What goes beside a question on the command line: read before any model is loaded, refused with the flag's name."""

from pathlib import Path

import pytest

from twostroke.cli.chat_flags import said_chat
from twostroke.cli.flag_words import in_flags
from twostroke.errors import ConfigError, ParamsError

QUESTION = [{"role": "user", "content": "hi"}]
TOOLS = '[{"type": "function", "function": {"name": "f"}}]'


def file_of(folder: Path, content: bytes) -> Path:
    path = folder / "tools.json"
    path.write_bytes(content)
    return path


def test_nothing_beside_a_question_is_a_plain_chat() -> None:
    chat = said_chat(QUESTION)
    assert (chat.tools, chat.reasoning_effort) == ((), None)
    assert not chat.variables


def test_functions_come_out_of_a_file(tmp_path: Path) -> None:
    chat = said_chat(QUESTION, tools=file_of(tmp_path, TOOLS.encode()), tool_choice="f")
    assert [tool.name for tool in chat.tools] == ["f"]


def test_a_choice_that_is_no_function_is_named_by_its_flag(tmp_path: Path) -> None:
    with pytest.raises(ParamsError) as refusal:
        said_chat(QUESTION, tools=file_of(tmp_path, TOOLS.encode()), tool_choice="g")
    assert in_flags(refusal.value) == "--tool-choice is 'g': it must be none, auto, required or one of f"
    with pytest.raises(ParamsError) as refusal:
        said_chat(QUESTION, tools=file_of(tmp_path, TOOLS.encode()), tool_choice="a top_k must be tools")
    words = "--tool-choice is 'a top_k must be tools': it must be none, auto, required or one of f"
    assert in_flags(refusal.value) == words


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff", "not UTF-8 at byte 0: convert it, iconv -t UTF-8"),
        (b"[", "--tools is no JSON: "),
        (b"[" * 100_000, "--tools is no JSON: "),
    ],
)
def test_a_file_that_is_no_json_is_named_with_the_place(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        said_chat(QUESTION, tools=file_of(tmp_path, content))
    assert said in str(refusal.value)


def test_a_file_that_is_not_there_is_one_plain_sentence(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(ConfigError) as refusal:
        said_chat(QUESTION, tools=path)
    assert str(refusal.value) == f"--tools {path}: No such file or directory"


def test_variables_of_the_template_are_an_object(tmp_path: Path) -> None:
    with pytest.raises(ParamsError) as refusal:
        said_chat(QUESTION, template_kwargs="[1]")
    assert in_flags(refusal.value).startswith("--template-kwargs is of type list")
    with pytest.raises(ConfigError, match="--template-kwargs is no JSON"):
        said_chat(QUESTION, template_kwargs="{")
