"""llama.cpp as a peer, on a puppet file: the same lines of JSON over a real evaluation."""

from pathlib import Path

import pytest

from tests.builders_llm import write_puppet
from twostroke.errors import TwostrokeError
from twostroke.measure.cell import Cell, Kind
from twostroke.measure.peer import PeerProcess

pytest.importorskip("llama_cpp")
pytestmark = pytest.mark.oracle


def test_llama_cpp_measures_phases_and_requests_alone_and_in_a_batch(tmp_path: Path) -> None:
    file = write_puppet(tmp_path / "puppet.gguf")
    with PeerProcess("llama.cpp", file, threads=1) as peer:
        assert peer.version.startswith("llama_cpp ")
        assert peer.features
        for depth, batch in ((0, 1), (20, 2), (20, 2)):
            assert peer.measure(Cell(Kind.PREFILL, prompt=16, depth=depth, batch=batch)) > 0
            assert peer.measure(Cell(Kind.DECODE, generate=4, depth=depth, batch=batch)) > 0
        for _ in range(3):  # the second finds the state of the first
            assert peer.measure(Cell(Kind.DECODE, generate=4, depth=33, batch=2)) > 0
        assert peer.measure(Cell(Kind.REQUESTS, prompt=40, generate=4, batch=3)) > 0


def test_a_file_it_cannot_load_is_told(tmp_path: Path) -> None:
    (tmp_path / "none.gguf").write_bytes(b"GGUF")
    with pytest.raises(TwostrokeError, match=r"llama\.cpp ended: .*cannot load"):
        PeerProcess("llama.cpp", tmp_path / "none.gguf", threads=1)


def test_prompts_longer_than_its_batch_are_cut_and_filled_in_order() -> None:
    import numpy as np

    from twostroke.measure.llama_cpp_peer import Batch

    batch = Batch(4, vocab_size=9)
    batch.fill(np.array([5, 6, 5], np.int32), np.array([0, 0, 1], np.int32), last=6)
    struct = batch.struct
    assert struct.n_tokens == 3
    assert np.ctypeslib.as_array(struct.pos, (3,)).tolist() == [5, 6, 5]
    assert [struct.seq_id[i][0] for i in range(3)] == [0, 0, 1]
    assert [struct.n_seq_id[i] for i in range(3)] == [1, 1, 1]
    assert [struct.logits[i] for i in range(3)] == [0, 1, 0]
    assert all(0 <= struct.token[i] < 9 for i in range(3))
