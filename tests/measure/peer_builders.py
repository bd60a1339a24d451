"""A scripted peer, ready to be asked."""

from pathlib import Path

from twostroke.measure.peer import PeerProcess

SCRIPTED = {"scripted": ("json", "tests.measure.scripted_peer")}


def open_peer(manner: str = "well", *, sequences: int = 4) -> PeerProcess:
    """`manner` is the name of the model's file; see scripted_peer.py."""
    return PeerProcess("scripted", Path(manner), threads=2, context=64, sequences=sequences, peers=SCRIPTED)
