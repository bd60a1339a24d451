"""The program's end of the lines: it loads, answers cell by cell, and its prints do not mix with the answers."""

import json
import subprocess
import sys

PROGRAM = """
from twostroke.measure.peer_lines import answer

class Peer:
    version, features = "3", "AVX2 = 1"
    def __init__(self, path, *, threads):
        print("a library prints", path, threads)
    def measure(self, cell):
        print("and prints")
        return cell.num_tokens / 10 if cell.kind.value == "decode" else 0.5

answer(Peer)
"""


def test_the_first_line_loads_and_every_other_measures() -> None:
    sizes = {"prompt": 0, "generate": 5, "depth": 0, "batch": 2}
    lines = [{"path": "x.gguf", "threads": 2}, {"kind": "decode", **sizes}, {"kind": "requests", **sizes}]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers == [{"version": "3", "features": "AVX2 = 1"}, {"seconds": 1.0}, {"seconds": 0.5}]
    assert done.stderr.splitlines() == ["a library prints x.gguf 2", "and prints", "and prints"]
