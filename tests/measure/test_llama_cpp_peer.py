"""llama.cpp as a peer, on a puppet file: the same lines of JSON over a real evaluation."""

from pathlib import Path

import pytest

from tests.builders_llm import write_puppet
from twostroke.errors import TwostrokeError
from twostroke.measure.peer import PeerProcess

pytest.importorskip("llama_cpp")
pytestmark = pytest.mark.oracle


def test_llama_cpp_measures_both_phases_alone_and_in_a_batch(tmp_path: Path) -> None:
    file = write_puppet(tmp_path / "puppet.gguf")
    with PeerProcess("llama.cpp", file, threads=1, context=64, sequences=2) as peer:
        assert peer.version.startswith("llama_cpp ")
        assert peer.features
        for depth, batch in ((0, 1), (20, 2)):
            times = peer.measure(prompt=16, generate=4, depth=depth, batch=batch)
            assert times.prefill_s > 0
            assert times.decode_s > 0
        assert peer.measure(prompt=0, generate=2, depth=0, batch=1).prefill_s == 0
        assert peer.measure(prompt=2, generate=0, depth=0, batch=1).decode_s == 0


def test_a_file_it_cannot_load_is_told(tmp_path: Path) -> None:
    (tmp_path / "none.gguf").write_bytes(b"GGUF")
    with pytest.raises(TwostrokeError, match=r"llama\.cpp ended: .*cannot load"):
        PeerProcess("llama.cpp", tmp_path / "none.gguf", threads=1, context=64, sequences=1)


def test_a_load_beyond_its_context_is_told(tmp_path: Path) -> None:
    file = write_puppet(tmp_path / "puppet.gguf")
    with (
        PeerProcess("llama.cpp", file, threads=1, context=64, sequences=1) as peer,
        pytest.raises(TwostrokeError, match=r"llama\.cpp ended: .*llama_decode returned"),
    ):
        peer.measure(prompt=2000, generate=0, depth=0, batch=1)
