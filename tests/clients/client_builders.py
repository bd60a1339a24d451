"""A server over a real engine whose model answers every chat with "abc", for other projects' clients to talk to."""

import importlib
import itertools
import struct
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cases.make_malformed import T_STR
from tests.cases.puppet import EOS, build_puppet, byte_token
from tests.cli.builders import CONTEXT_KEY
from tests.e2e.server_process import ServerProcess, running_server

TWOSTROKE = ["-c", "import sys; from twostroke.cli.entry import main; sys.exit(main())"]
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}{% if add_generation_prompt %}?{% endif %}"
ANSWER = "abc"
MODEL = "puppet.gguf"
CONTEXT = 1024
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 3}, "age": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def client_library(name: str) -> Any:
    """The library, whatever it warns of while it is imported; the test is skipped where it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError:
            pytest.skip(f"{name} is not installed", allow_module_level=True)


@contextmanager
def chat_server(folder: Path, *options: str) -> Iterator[ServerProcess]:
    said = [ord("?"), *ANSWER.encode()]
    table = {byte_token(byte): byte_token(following) for byte, following in itertools.pairwise(said)}
    table[byte_token(said[-1])] = EOS
    puppet = build_puppet(table, more_keys=[("tokenizer.chat_template", T_STR, TEMPLATE)]).file
    place = puppet.index(CONTEXT_KEY) + len(CONTEXT_KEY)
    file = folder / MODEL
    file.write_bytes(puppet[:place] + struct.pack("<I", CONTEXT) + puppet[place + 4 :])
    command = [*TWOSTROKE, "serve", "-m", str(file), "--port", "0", "--threads", "1", *options]
    with running_server(command) as server:
        yield server


def run_module(name: str, arguments: Sequence[str], *, env: dict[str, str]) -> str:
    """What a client's own command prints; it must end well."""
    command = [sys.executable, "-W", "ignore", "-m", name, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout
