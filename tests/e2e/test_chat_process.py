"""`twostroke chat` as a person and as a pipe meet it: real processes, a real terminal."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.builders_gguf import write_model
from tests.builders_llm import write_puppet
from tests.cases.make_malformed import T_U32
from tests.cli.builders import environment, run
from tests.cli.terminal import PATIENCE_S, Typist, typing_to

CTRL_C, CTRL_D = b"\x03", b"\x04"
ENDLESS = "{% for message in messages %}{{ message.content }}{% endfor %}x"  # the puppet then says xz for ever


def test_a_pipe_of_questions_gives_answers_and_nothing_else_on_stdout(tmp_path: Path) -> None:
    model, home = write_puppet(tmp_path / "puppet.gguf"), environment(tmp_path / "home")
    code, out, err = run(["chat", str(model), "--max-tokens", "4"], env=home, data=b"hi\n/set seed 3\nho\n")
    assert code == 0
    assert out.endswith(b"\n")
    assert b"seed 3" not in out
    assert b"seed 3" in err
    assert not (tmp_path / "home" / "chat_history").exists()


@pytest.mark.parametrize(
    ("data", "flags", "words"),
    [
        (b"/nope\n", [], b"there is no /nope"),
        (b"/save /nodir/x\n", [], b"cannot be written"),
        (b"hi\n", ["--max-tokens", "99999"], b"max_tokens of 99999"),
        (b"why? " * 10_000 + b"\n", [], b"the context is"),
        (b"\xff\n", [], b"not UTF-8"),
    ],
)
def test_a_pipe_that_was_told_an_error_ends_with_its_code(
    tmp_path: Path, data: bytes, flags: list[str], words: bytes
) -> None:
    """The other lines are answered all the same: nobody reads along who could mend the one."""
    model = write_puppet(tmp_path / "puppet.gguf")
    ask = [b"/set max_tokens 4\n", b"ho\n"]
    code, out, err = run(["chat", str(model), *flags], env=environment(tmp_path / "home"), data=b"".join([data, *ask]))
    assert code == 2
    assert words in err
    assert out.count(b"\n") == 1


def test_a_model_that_embeds_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    model = tmp_path / "pooled.gguf"
    write_model(model, "llama", tensor_type="F32", keys=[("llama.pooling_type", T_U32, 1)])
    code, out, err = run(["chat", str(model)], env=environment(tmp_path / "home"))
    assert (code, out) == (2, b"")
    assert b"is a model that embeds" in err


@contextmanager
def chatting(tmp_path: Path, *, max_tokens: int) -> Iterator[Typist]:
    endless = write_puppet(tmp_path / "endless.gguf", template=ENDLESS, context=200_000)
    command = [sys.executable, "-m", "twostroke", "chat", str(endless), "--max-tokens", str(max_tokens)]
    with typing_to(command, env=environment(tmp_path / "home")) as typist:
        typist.wait_for_prompt(b"Ctrl-D leaves")
        yield typist


def test_ctrl_c_ends_an_answer_that_would_go_on_and_ctrl_d_the_chat(tmp_path: Path) -> None:
    """Stopped, the puppet is asked for less, and the line typed before is found again."""
    with chatting(tmp_path, max_tokens=150_000) as typist:
        typist.type(b"hi\n")
        typist.wait_for(b"zxzxzx")
        typist.type(CTRL_C)
        typist.wait_for(b"/retry asks again")
        assert b"^C" not in typist.sent, "a key is no part of the answer"
        typist.wait_for_prompt(b"/retry asks again")
        typist.type(b"/set max_tokens 7\n")
        typist.wait_for_prompt(b"max_tokens 7\x1b[0m")
        typist.type(b"/retry\n")
        typist.wait_for_prompt(b"ended at max_tokens of 7")
        typist.type(b"half a question")
        typist.wait_for(b"half a question")
        typist.type(CTRL_C)
        typist.wait_for_prompt(b"Ctrl-D or /quit leaves")
        typist.type(CTRL_D)
        assert typist.process.wait(PATIENCE_S) == 0
    assert "/set max_tokens 7" in (tmp_path / "home" / "chat_history").read_text()


def test_ctrl_c_at_any_moment_and_many_times_ends_no_chat(tmp_path: Path) -> None:
    """As a question is sent, while it is answered, between the lines: the chat is still there afterwards."""
    with chatting(tmp_path, max_tokens=2_000) as typist:
        for i in range(40):
            typist.process.send_signal(signal.SIGINT)
            if i % 4 == 0:
                typist.type(b"hi\n")
            time.sleep(i % 7 / 100)
        for _ in range(30):  # the last press may clear a line
            typist.type(b"\n/set seed 4711\n")
            if typist.shows(b"seed 4711\x1b[0m", within_s=3.0):
                break
        typist.wait_for(b"seed 4711\x1b[0m")
        typist.type(CTRL_D)
        assert typist.process.wait(PATIENCE_S) == 0


def test_ctrl_d_while_an_answer_comes_leaves_after_it(tmp_path: Path) -> None:
    with chatting(tmp_path, max_tokens=1_000) as typist:
        typist.type(b"hi\n")
        typist.wait_for(b"zxzxzx")
        typist.type(CTRL_D)
        typist.wait_for(b"ended at max_tokens of 1000")
        assert typist.process.wait(PATIENCE_S) == 0
