"""`twostroke chat` before there is a conversation: what it refuses. e2e/test_chat_process.py has the rest."""

import pytest

from twostroke.cli import app


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--api-key", "k"], "--api-key belongs to --url"),
        (["--url", "http://h", "--threads", "1"], "leave them out with --url"),
        (["--url", "nowhere"], "--url is 'nowhere'"),
        (["--temperature", "-1"], "--temperature is -1"),
        (["--max-tokens", "0"], "--max-tokens is 0"),
    ],
)
def test_flags_that_cannot_work_are_refused_before_anything_is_loaded(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert app.main(["chat", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_server_that_is_not_there_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["chat", "--url", "http://127.0.0.1:9"]) == 1
    assert "cannot be reached" in capsys.readouterr().err
