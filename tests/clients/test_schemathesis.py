"""schemathesis reads /openapi.json and sends what it allows, and what it does not: none of it may be a 500."""

import os
from pathlib import Path

import pytest

from tests.clients.client_builders import chat_server, client_library, run_module

client_library("schemathesis")
pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize("options", [(), ("--ollama",)], ids=["openai", "with ollama"])
def test_nothing_it_finds_to_send_is_a_server_error(options: tuple[str, ...], tmp_path: Path) -> None:
    with chat_server(tmp_path, *options) as server:
        checks = ["--checks", "not_a_server_error", "--phases", "examples,coverage,fuzzing", "--seed", "1"]
        run_module(
            "schemathesis.cli",
            ["run", f"{server.address}/openapi.json", *checks, "--max-examples", "60", "--no-color"],
            env={**os.environ, "HOME": str(tmp_path)},
        )
        assert server.health()["status"] == "ok"
        assert server.stop() == (0, "")
