"""Another program asked line by line: what it answers, and how it may fail."""

import sys
from pathlib import Path

import pytest

from tests.measure.peer_builders import open_peer
from twostroke.errors import ConfigError, TwostrokeError
from twostroke.measure.peer import PEERS, PeerProcess, PhaseTimes


@pytest.mark.parametrize("manner", ["well", "chatty"])
def test_a_peer_answers_one_measurement_after_the_other(manner: str) -> None:
    with open_peer(manner) as peer:
        assert (peer.name, peer.version, peer.features) == ("scripted", "json 1.2", "threads 2 of 4")
        for prompt in (500, 250):
            times = peer.measure(prompt=prompt, generate=10, depth=0, batch=2)
            assert times == PhaseTimes(prefill_s=prompt / 1000, decode_s=0.2)
    assert peer._process.poll() is not None
    peer.close()


@pytest.mark.parametrize(
    ("manner", "words"),
    [
        ("cannot-load", "scripted ended: no such format\nscripted peer cannot load it"),
        ("silent-end", "scripted ended: it said nothing"),
        ("no-json", "scripted answered 'hello!\\\\n', which is not JSON"),
        ("no-object", "which is no object"),
        ("no-version", "has no 'version'"),
    ],
)
def test_a_peer_that_does_not_start_tells_its_last_words(manner: str, words: str) -> None:
    with pytest.raises(TwostrokeError, match=words):
        open_peer(manner)


def test_a_peer_that_ends_later_tells_them_too() -> None:
    with open_peer("ends-later") as peer, pytest.raises(TwostrokeError, match="scripted ended: out of memory"):
        peer.measure(prompt=1, generate=1, depth=0, batch=1)


def test_an_unknown_peer_is_told_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"--vs is 'vllm': known peers are llama\.cpp"):
        PeerProcess("vllm", Path("x"), threads=1, context=1, sequences=1)


def test_a_missing_module_is_told_with_the_fix() -> None:
    peers = {"other": ("no_such_module", "tests.measure.scripted_peer")}
    with pytest.raises(
        ConfigError, match=r"needs the module no_such_module: .*in the clone .*, pip install '\.\[bench\]'"
    ):
        PeerProcess("other", Path("x"), threads=1, context=1, sequences=1, peers=peers)


def test_asking_for_a_peer_imports_nothing_of_it() -> None:
    for module, program in PEERS.values():
        assert program not in sys.modules
        assert module
