"""`twostroke serve` says where it listens, answers there, and ends cleanly on Ctrl-C."""

import json
import re
import signal
import socket
import urllib.request
from pathlib import Path

import pytest

from tests.cli.builders import environment, make_chain, running
from twostroke.cli import app


def test_the_server_announces_answers_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    model = make_chain(tmp_path / "chain.gguf", prompt_end="?", answer=b"abc")
    with running(["serve", "-m", str(model), "--port", "0"], env=environment(tmp_path / "home")) as process:
        assert process.stderr is not None
        line = b""
        while not line.endswith(b"\n"):
            byte = process.stderr.read(1)
            assert byte, f"the server ended: {line!r}"
            line += byte
        found = re.fullmatch(
            rf"twostroke: {model} is served at (http://127\.0\.0\.1:\d+)/v1, Ctrl-C ends\n", line.decode()
        )
        assert found
        question = json.dumps({"model": "chain.gguf", "prompt": "why?", "max_tokens": 10}).encode()
        request = urllib.request.Request(f"{found[1]}/v1/completions", question, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert json.load(answer)["choices"][0]["text"] == "abc"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, b"", b"")


@pytest.mark.parametrize("port", ["-1", "70000"])
def test_a_port_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path, port: str) -> None:
    model = make_chain(tmp_path / "chain.gguf", prompt_end="?", answer=b"abc")
    assert app.main(["serve", "-m", str(model), "--threads", "1", "--port", port]) == 2
    assert f"port {port} does not exist" in capsys.readouterr().err


def test_a_port_in_use_is_told_before_any_model_is_loaded(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert app.main(["serve", "-m", str(tmp_path / "no-such.gguf"), "--port", str(port)]) == 2
    assert capsys.readouterr().err == (
        f"twostroke: cannot listen on 127.0.0.1:{port}: another program listens there; choose another address or port\n"
    )
