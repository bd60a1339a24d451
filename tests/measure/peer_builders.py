"""Peers that are scripted, ready to be asked."""

import sys
from pathlib import Path

from twostroke.measure.cell import Cell
from twostroke.measure.peer import PeerProcess, PeerProgram


def refuse_depth(cell: Cell) -> str | None:
    return "scripted has no depth" if cell.depth else None


SCRIPTED = {"scripted": PeerProgram("json", "tests.measure.scripted_peer", refuse_depth)}

FAKE_BENCH = """#!{python}
import json, sys

manner, has_depth = {manner!r}, {has_depth!r}
arguments = sys.argv[1:]
if arguments == ["--help"]:
    print("usage: llama-bench" if manner == "other" else "  -p, --n-prompt <n>\\n  -pg <pp,tg>")
    print("  -d, --n-depth <n>" if has_depth else "  -gp <pp,tg>")
    raise SystemExit(0)
asked = dict(zip(arguments[::2], arguments[1::2]))
if manner == "cannot-load":
    sys.exit("cannot load " + asked["-m"])
if manner == "no-json":
    print("hello!")
    raise SystemExit(0)
late = asked.get("-pg", asked.get("-gp", "0,0")).split(",")
prompt, generate = int(asked["-p"]) + int(late[0]), int(asked["-n"]) + int(late[1])
report = {{
    "build_commit": "abc", "build_number": 7, "model_filename": asked["-m"], "n_threads": int(asked["-t"]),
    "n_prompt": prompt, "n_gen": generate, "samples_ns": [(prompt + 10 * generate) * 1_000_000],
}}
if has_depth:
    report |= {{"n_depth": int(asked.get("-d", 0)), "backends": "CPU"}}
else:
    report |= {{"cuda": False, "vulkan": False, "rpc": "0"}}
report |= {changes!r}
print(json.dumps([report] * (2 if manner == "twice" else 1)))
"""


def open_peer(manner: str = "well") -> PeerProcess:
    """`manner` is the name of the model's file; see scripted_peer.py."""
    return PeerProcess("scripted", Path(manner), threads=2, peers=SCRIPTED)


def write_bench(
    path: Path, manner: str = "well", *, has_depth: bool = True, changes: dict[str, object] | None = None
) -> Path:
    """A llama-bench of 1 ms per token read and 10 ms per token written, whose report says `changes` instead."""
    text = FAKE_BENCH.format(python=sys.executable, manner=manner, has_depth=has_depth, changes=changes or {})
    path.write_text(text)
    path.chmod(0o755)
    return path
