"""The state of a chat: turns, settings, what is saved."""

import json
from pathlib import Path

import pytest

from twostroke.cli.conversation import SETTINGS, Conversation
from twostroke.errors import ConfigError, ParamsError, TwostrokeError
from twostroke.params import SamplingParams


def test_questions_and_answers_are_messages_behind_the_system() -> None:
    talk = Conversation(system="brief")
    assert not talk.ask("a")
    talk.hear("b")
    assert not talk.ask("c")
    assert [message["role"] for message in talk.messages] == ["system", "user", "assistant", "user"]
    assert talk.is_waiting
    talk.system = None
    assert [message["content"] for message in talk.messages] == ["a", "b", "c"]


def test_a_question_without_an_answer_gives_its_place_to_the_next() -> None:
    talk = Conversation()
    talk.ask("too long")
    assert talk.ask("short")
    assert [message["content"] for message in talk.messages] == ["short"]


def test_taking_back_leaves_the_question() -> None:
    talk = Conversation()
    assert not talk.take_back()
    talk.ask("a")
    assert talk.take_back()
    talk.hear("b")
    assert talk.take_back()
    assert talk.messages == [{"role": "user", "content": "a"}]


def test_clearing_keeps_system_and_settings() -> None:
    talk = Conversation(system="brief")
    talk.set("seed", "4")
    talk.ask("a")
    talk.clear()
    assert (talk.messages, talk.settings) == ([{"role": "system", "content": "brief"}], {"seed": 4})


def test_settings_are_numbers_of_their_kind_and_go_back_to_the_default() -> None:
    talk = Conversation()
    for name, text, value in (("temperature", "0.7", 0.7), ("top_k", "5", 5), ("temperature", "0", 0.0)):
        talk.set(name, text)
        assert talk.settings[name] == value
        assert type(talk.settings[name]) is SETTINGS[name]
    talk.set("temperature", None)
    talk.set("seed", None)
    assert talk.settings == {"top_k": 5}


@pytest.mark.parametrize(
    ("name", "text", "kind", "words"),
    [
        ("colour", "red", ConfigError, "/set knows no 'colour': it knows temperature"),
        ("seed", "1.5", ParamsError, "seed is '1.5': it must be a whole number"),
        ("top_p", "much", ParamsError, "top_p is 'much': it must be a number"),
        ("top_p", "2", ParamsError, "top_p is 2"),
        ("max_tokens", "0", ParamsError, "max_tokens is 0"),
    ],
)
def test_what_cannot_be_set_is_refused_and_changes_nothing(
    name: str, text: str, kind: type[TwostrokeError], words: str
) -> None:
    talk = Conversation()
    with pytest.raises(kind, match=words.replace("(", r"\(")):
        talk.set(name, text)
    assert talk.settings == {}


def test_every_setting_is_a_field_of_a_request() -> None:
    assert set(SETTINGS) <= set(SamplingParams.__dataclass_fields__)


def test_a_saved_conversation_can_be_read_and_is_never_overwritten(tmp_path: Path) -> None:
    talk = Conversation(system="brief", settings={"seed": 4})
    talk.ask("漢")
    talk.save(tmp_path / "a.json")
    saved = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(saved) == {"messages": talk.messages, "settings": {"seed": 4}}
    assert "漢" in saved
    with pytest.raises(ConfigError, match=r"a\.json exists: give another name"):
        talk.save(tmp_path / "a.json")
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        talk.save(tmp_path / "none" / "a.json")
