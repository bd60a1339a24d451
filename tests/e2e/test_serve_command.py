"""`twostroke serve` as a process: it says where it listens, answers there, and ends cleanly on Ctrl-C."""

import json
import re
import signal
import urllib.request
from pathlib import Path

from tests.cli.builders import environment, make_chain, running


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
