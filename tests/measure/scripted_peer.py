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
features = f" AVX512 = {int(manner == 'wide')} | threads = {about['threads']} "
print(json.dumps({"version": "1.2", "features": features}), flush=True)
for line in sys.stdin:
    cell = json.loads(line)
    if manner == "ends-later":
        raise SystemExit("out of memory")
    print(json.dumps({"seconds": cell["batch"] * (cell["prompt"] / 1000 + cell["generate"] / 100)}), flush=True)
