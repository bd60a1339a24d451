"""Another program asked line by line: what it answers, and how it may fail."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.measure.peer_builders import open_peer, write_bench
from twostroke.errors import ConfigError, TwostrokeError
from twostroke.measure import peer as peer_module
from twostroke.measure.cell import Cell, Kind
from twostroke.measure.llama_bench import LlamaBench
from twostroke.measure.peer import PEERS, PeerProcess, PeerProgram

PREFILL = Cell(Kind.PREFILL, prompt=500, batch=2)


@pytest.mark.parametrize("manner", ["well", "chatty"])
def test_a_peer_answers_one_measurement_after_the_other(manner: str) -> None:
    with open_peer(manner) as peer:
        assert (peer.name, peer.version, peer.features) == ("scripted", "json 1.2", "AVX512 = 0 | threads = 2")
        assert peer.measure(PREFILL) == 1.0
        assert peer.measure(Cell(Kind.DECODE, generate=10)) == 0.1
        assert peer.refusal(PREFILL) is None
        assert peer.refusal(Cell(Kind.PREFILL, prompt=1, depth=5)) == "scripted has no depth"
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
        peer.measure(PREFILL)


def test_an_unknown_peer_is_told_the_known_ones() -> None:
    known = r"--vs is 'vllm': known peers are llama\.cpp, openvino and every path to a llama-bench"
    with pytest.raises(ConfigError, match=known):
        peer_module.open_peer("vllm", Path("x"), threads=1)


def test_a_path_is_a_llama_bench(tmp_path: Path) -> None:
    program = write_bench(tmp_path / "some-bench")
    with peer_module.open_peer(str(program), tmp_path / "x", threads=1) as peer:
        assert isinstance(peer, LlamaBench)
        assert peer.name == "some-bench"


def test_a_missing_module_is_told_with_the_fix() -> None:
    peers = {"other": PeerProgram("no_such_module", "tests.measure.scripted_peer", lambda cell: None)}
    with pytest.raises(
        ConfigError, match=r"needs the module no_such_module: .*in the clone .*, pip install '\.\[bench\]'"
    ):
        PeerProcess("other", Path("x"), threads=1, peers=peers)


def test_asking_for_a_peer_imports_nothing_of_it() -> None:
    program = (
        "import sys; from twostroke.measure.peer import PEERS; "
        "print([peer.program for peer in PEERS.values() if peer.program in sys.modules or not peer.module])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.parametrize(
    ("cell", "refused"),
    [
        (Cell(Kind.PREFILL, prompt=5), False),
        (Cell(Kind.DECODE, generate=5, depth=100), False),
        (Cell(Kind.REQUESTS, prompt=5, generate=5, batch=16), False),
        (Cell(Kind.PREFILL, prompt=5, depth=100), True),
        (Cell(Kind.PREFILL, prompt=5, batch=2), True),
        (Cell(Kind.DECODE, generate=5, batch=2), True),
    ],
)
def test_openvino_is_asked_only_what_it_tells(cell: Cell, refused: bool) -> None:
    assert (PEERS["openvino"].refusal(cell) is not None) is refused
    assert PEERS["llama.cpp"].refusal(cell) is None
