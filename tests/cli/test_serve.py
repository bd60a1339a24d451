"""`twostroke serve` refuses addresses before it loads a model. e2e/test_serve_command.py has the rest."""

import socket
from pathlib import Path

import pytest

from tests.cli.builders import make_chain
from twostroke.cli import app


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
