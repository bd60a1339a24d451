"""`twostroke chat` as a person and as a pipe meet it: real processes, a real terminal."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.builders_llm import write_puppet
from tests.cli.builders import environment, run
from twostroke.cli import app

PATIENCE_S = 90.0  # cores are shared with compilers


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_puppet(tmp_path_factory.mktemp("chat") / "puppet.gguf")


def test_a_pipe_of_questions_gives_answers_and_nothing_else_on_stdout(tmp_path: Path, model: Path) -> None:
    home = environment(tmp_path / "home")
    code, out, err = run(["chat", str(model), "--max-tokens", "4"], env=home, data=b"hi\n/set seed 3\n/nope\nho\n")
    assert code == 0
    assert out.endswith(b"\n")
    assert b"seed 3" not in out
    assert b"seed 3" in err
    assert b"there is no /nope" in err
    assert not (tmp_path / "home" / "chat_history").exists()


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


class Typist:
    """The program on a terminal of its own, and what its screen was sent."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.sent = b""
        self._master = master

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def wait_for(self, text: bytes, *, count: int = 1) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while self.sent.count(text) < count:
            assert time.monotonic() < deadline_s, (text, self.sent)
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.sent += os.read(self._master, 65_536)
                except OSError:  # the other side has closed
                    break
        assert self.sent.count(text) >= count, self.sent

    def wait_for_prompt(self, after: bytes) -> None:
        """A prompt behind these words: only then does the line editor, not the terminal, take what is typed."""
        self.wait_for(after)
        self.sent = self.sent[self.sent.rindex(after) :]
        self.wait_for(b"> ")


@contextmanager
def typing_to(arguments: list[str], *, home: Path) -> Iterator[Typist]:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "twostroke", *arguments]
    env = environment(home, TERM="xterm")
    try:
        with subprocess.Popen(
            command, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        ) as process:
            os.close(slave)
            try:
                yield Typist(process, master)
            finally:
                process.kill()
    finally:
        os.close(master)


@pytest.mark.slow
def test_ctrl_c_ends_an_answer_that_would_go_on_and_ctrl_d_the_chat(tmp_path: Path) -> None:
    """The puppet says xz for ever; stopped, it is asked for less, and the line typed before is found again."""
    template = "{% for message in messages %}{{ message.content }}{% endfor %}x"
    endless = write_puppet(tmp_path / "endless.gguf", template=template, context=200_000)
    arguments = ["chat", str(endless), "--max-tokens", "150000"]
    with typing_to(arguments, home=tmp_path / "home") as typist:
        typist.wait_for_prompt(b"Ctrl-D leaves")
        typist.type(b"hi\n")
        typist.wait_for(b"zxzxzx")
        typist.process.send_signal(signal.SIGINT)
        typist.wait_for_prompt(b"/retry asks again")
        typist.type(b"/set max_tokens 7\n")
        typist.wait_for_prompt(b"max_tokens 7\x1b[0m")
        typist.type(b"/retry\n")
        typist.wait_for_prompt(b"ended at max_tokens of 7")
        typist.type(b"half a question")
        typist.wait_for(b"half a question")
        typist.process.send_signal(signal.SIGINT)
        typist.wait_for_prompt(b"Ctrl-D or /quit leaves")
        typist.type(b"\x04")
        assert typist.process.wait(PATIENCE_S) == 0
    assert "/set max_tokens 7" in (tmp_path / "home" / "chat_history").read_text()
