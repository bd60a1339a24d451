"""The loop of a chat, without a terminal and without a model."""

import json
from pathlib import Path

import pytest

from tests.cli.chat_builders import BrokenOff, Chat, ScriptedSource, make_spoken, typing
from twostroke.cli.chat_session import HELP
from twostroke.errors import CapacityError, RemoteError, RequestError

FULL = CapacityError("90 prompt tokens + max_tokens of 20 = 110, the context is 100: max_tokens of at most 10 fits")


def contents(chat: Chat, turn: int) -> list[str]:
    return [message["content"] for message in chat.source.asked[turn][0]]


def test_each_question_carries_all_that_was_said() -> None:
    chat = Chat("a", "b", source=ScriptedSource("one", "two"), system="brief")
    assert chat.text == "one\ntwo\n"
    assert contents(chat, 1) == ["brief", "a", "one", "b"]
    assert chat.notes == []


def test_nothing_is_asked_of_an_empty_line() -> None:
    assert Chat("", "  ", source=ScriptedSource()).source.asked == []


def test_a_line_behind_a_blank_is_a_question_whatever_it_looks_like() -> None:
    assert contents(Chat(" /clear", source=ScriptedSource("x")), 0) == ["/clear"]


def test_settings_go_with_every_question_until_they_are_taken_back() -> None:
    chat = Chat("/set seed 4", "a", "/set seed", "b", source=ScriptedSource("x", "y"))
    assert [settings for _, settings in chat.source.asked] == [{"seed": 4}, {}]
    assert chat.notes == ["seed 4", "seed not set"]


def test_all_settings_are_shown_with_what_they_are_by_default() -> None:
    chat = Chat("/set top_p 0.5", "/set", source=ScriptedSource())
    assert "top_p 0.5" in chat.notes
    assert "temperature 0 (default)" in chat.notes
    assert "max_tokens 256 (default)" in chat.notes
    assert "seed not set" in chat.notes


def test_defaults_of_a_server_are_its_own_business() -> None:
    assert Chat("/set seed", source=ScriptedSource(defaults={})).notes == ["seed the server's default"]


def test_the_system_message_is_set_shown_and_taken_away() -> None:
    chat = Chat("/system", "/system be brief", "a", "/system -", "b", source=ScriptedSource("x", "y"))
    assert contents(chat, 0) == ["be brief", "a"]
    assert contents(chat, 1) == ["a", "x", "b"]
    assert chat.notes == ["no system message", "system: be brief", "no system message"]


def test_clearing_forgets_and_says_what_stays() -> None:
    chat = Chat("a", "/clear", "b", source=ScriptedSource("x", "y"), system="brief")
    assert contents(chat, 1) == ["brief", "b"]
    assert chat.notes == ["all forgotten but the system message"]
    assert Chat("/clear", source=ScriptedSource()).notes == ["all forgotten"]


def test_a_retry_asks_the_last_question_without_its_answer() -> None:
    chat = Chat("a", "b", "/set temperature 0.7", "/retry", source=ScriptedSource("x", "y", "z"))
    assert contents(chat, 2) == ["a", "x", "b"]
    assert chat.session.conversation.turns[-1]["content"] == "z"


def test_a_retry_that_can_only_repeat_says_so() -> None:
    chat = Chat("a", "/retry", source=ScriptedSource("x", "x"))
    assert chat.notes == ["temperature is 0, the answer will be the same: /set temperature 0.7 for another"]


def test_an_answer_at_its_limit_says_so() -> None:
    cut = make_spoken("x", reason="length")
    assert Chat("a", source=ScriptedSource(cut)).notes == [
        "the answer ended at max_tokens of 256: /set max_tokens N and /retry, or ask to go on"
    ]
    assert "ended at its limit" in Chat("a", source=ScriptedSource(cut, defaults={})).notes[0]


def test_an_interrupted_answer_is_kept_and_the_chat_goes_on() -> None:
    chat = Chat("a", "b", source=ScriptedSource(make_spoken("half", reason="cancelled"), "whole"))
    assert contents(chat, 1) == ["a", "half", "b"]
    assert chat.notes == ["ended after 3 tokens; /retry asks again"]


def test_one_interrupted_before_its_first_word_leaves_the_question() -> None:
    chat = Chat("a", "/retry", source=ScriptedSource(make_spoken("", reason="cancelled", num_tokens=0), "whole"))
    assert contents(chat, 1) == ["a"]


def test_ctrl_c_at_the_prompt_says_how_to_leave() -> None:
    chat = Chat(KeyboardInterrupt, "a", source=ScriptedSource("x"))
    assert chat.notes == ["", "Ctrl-D or /quit leaves"]
    assert chat.text == "x\n"


def test_ctrl_c_ends_a_chat_that_nobody_types() -> None:
    chat = Chat(source=ScriptedSource())
    chat.session.is_typed = False
    with pytest.raises(KeyboardInterrupt):
        chat.session.run(typing([KeyboardInterrupt]))


def test_a_full_context_is_told_with_its_arithmetic_and_nothing_is_left_out() -> None:
    """The question stays; with fewer tokens for the answer it is asked again as it was."""
    chat = Chat("a", "long", "/set max_tokens 10", "/retry", source=ScriptedSource("x", FULL, "y"))
    assert chat.notes[0] == str(FULL)
    assert chat.notes[1].startswith("/set max_tokens N makes room for /retry")
    assert contents(chat, 2) == ["a", "x", "long"]


def test_a_full_context_of_a_server_is_told_alike() -> None:
    chat = Chat("a", source=ScriptedSource(RemoteError(str(FULL), kind="http 400")))
    assert len(chat.notes) == 2


def test_a_question_that_failed_is_told_to_be_left_out_by_the_next() -> None:
    chat = Chat("a", "b", source=ScriptedSource(RequestError("a logit\nis nan"), "y"))
    assert contents(chat, 1) == ["b"]
    assert chat.notes == ["a logit is nan", "the question before this one has no answer and is left out"]


def test_an_answer_that_breaks_off_ends_its_line_and_its_question_waits() -> None:
    broken = BrokenOff("half", RemoteError("the server closed the connection", kind="stream cut"))
    chat = Chat("a", "/retry", "b", source=ScriptedSource(broken, "whole", "y"))
    assert chat.notes == [
        "",
        "what came of this answer is not kept; /retry asks again",
        "the server closed the connection",
    ]
    assert contents(chat, 1) == ["a"]
    assert contents(chat, 2) == ["a", "whole", "b"]


def test_what_is_thought_is_shown_aside_and_not_said_again() -> None:
    chat = Chat("a", "b", source=ScriptedSource("x", "y", thought="hm"))
    assert chat.text == "x\ny\n"
    assert "".join(chat.asides) == "thinking:\nhm\n\n" * 2
    assert contents(chat, 1) == ["a", "x", "b"]


def test_an_answer_that_only_thought_until_its_limit_leaves_the_question() -> None:
    cut = make_spoken("", reason="length")
    chat = Chat("a", "/retry", source=ScriptedSource(cut, "whole", thought="hm"))
    assert contents(chat, 1) == ["a"]
    assert "".join(chat.asides).startswith("thinking:\nhm\nthinking:")


def test_phases_are_those_of_the_last_answer() -> None:
    assert Chat("a", "b", "/phases", source=ScriptedSource("x", "y")).notes == ["phases of y"]


def test_a_conversation_is_saved(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    chat = Chat("a", f"/save {file}", f"/save {file}", "/save", source=ScriptedSource("x"))
    assert json.loads(file.read_text())["messages"][1] == {"role": "assistant", "content": "x"}
    assert chat.notes[0] == f"saved 2 messages in {file}"
    assert "exists" in chat.notes[1]
    assert chat.notes[2] == "/save needs the name of a file"
    begun = Chat(f"/save {tmp_path / 'begun.json'}", source=ScriptedSource(), system="Be kind.")
    assert begun.notes == [f"saved 1 message in {tmp_path / 'begun.json'}"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/phases", "nothing was answered yet"),
        ("/retry", "nothing was asked yet"),
        ("/foo", "there is no /foo: there are /phases, /system"),
        ("/", "there is no /:"),
        ("/set colour red", "/set knows no 'colour'"),
        ("/set seed x", "seed is 'x'"),
    ],
)
def test_a_mistake_is_told_and_the_chat_goes_on(line: str, words: str) -> None:
    chat = Chat(line, "a", source=ScriptedSource("x"))
    assert words in chat.notes[0]
    assert chat.text == "x\n"


def test_the_first_error_is_kept_for_whoever_ends_the_chat() -> None:
    assert Chat("a", source=ScriptedSource("x")).session.first_error is None
    failed = RequestError("a logit is nan")
    assert Chat("a", "/nope", "b", source=ScriptedSource(failed, FULL)).session.first_error is failed


def test_quit_leaves() -> None:
    assert Chat("/quit", "a", source=ScriptedSource()).source.asked == []


def test_help_lists_every_command_and_fits_a_terminal() -> None:
    chat = Chat("/help", source=ScriptedSource())
    assert chat.notes == HELP.splitlines()
    for name in (*chat.session._commands(), "quit"):
        assert f"/{name}" in HELP
