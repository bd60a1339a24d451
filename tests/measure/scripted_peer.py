"""A peer that does nothing, through the same lines of JSON; the model's file name says how it behaves."""

import json
import sys
from pathlib import Path
from typing import Any

about: dict[str, Any] = json.loads(sys.stdin.readline())
manner = Path(about["path"]).name
if manner == "cannot-load":
    raise SystemExit("no such format\nscripted peer cannot load it")
if manner == "silent-end":
    raise SystemExit(0)
if manner == "chatty":
    sys.stderr.write("log\n" * 100_000)  # more than a pipe holds
if manner == "no-json":
    print("hello!", flush=True)
if manner == "no-object":
    print("[1]", flush=True)
if manner == "no-version":
    print("{}", flush=True)
print(json.dumps({"version": "1.2", "features": f" threads {about['threads']} of {about['sequences']} "}), flush=True)
for line in sys.stdin:
    load = json.loads(line)
    if manner == "ends-later":
        raise SystemExit("out of memory")
    seconds = {"prefill_s": load["prompt"] / 1000, "decode_s": load["batch"] * load["generate"] / 100}
    print(json.dumps(seconds), flush=True)
