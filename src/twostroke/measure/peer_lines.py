"""The other end of PeerProcess: a program that loads a peer, then answers every line of JSON with one.

Owns the streams; what is measured, and how, is the peer's.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Protocol

from twostroke.measure.cell import Cell, Kind


class LoadedPeer(Protocol):
    version: str
    features: str

    def measure(self, cell: Cell) -> float: ...  # seconds


def answer(load: Callable[..., LoadedPeer]) -> None:
    """The first line loads (path, threads), every further one measures a cell; end of input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not mix with the answers
    peer = load(**json.loads(sys.stdin.readline()))
    print(json.dumps({"version": peer.version, "features": peer.features}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps({"seconds": peer.measure(_cell_of(line))}), file=answers, flush=True)


def _cell_of(line: str) -> Cell:
    fields = json.loads(line)
    return Cell(**{**fields, "kind": Kind(fields["kind"])})
