"""Packed weights on disk: found as long as the model's file stays as it is, and never at the price of a load."""

import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

import twostroke
from tests.builders_gguf import write_llama
from twostroke import _native
from twostroke.model import packed_store
from twostroke.model.families import build_program
from twostroke.model.open import open_model
from twostroke.model.packed_file import HUGE_PAGE
from twostroke.model.packed_store import PackedCopy, PackedStore, file_name
from twostroke.model.source import ModelSource
from twostroke.program.packed import PackedMatrix, pack_matrices, packed_layout
from twostroke.program.quant import StoredTensor

Log = pytest.LogCaptureFixture
HEAD = HUGE_PAGE  # what a file has beside the weights


def make_store(folder: Path, *, limit_bytes: int = 10**9, smallest_bytes: int = 0, version: str = "v1") -> PackedStore:
    return PackedStore(folder / "packed", version=version, limit_bytes=limit_bytes, smallest_bytes=smallest_bytes)


def write_source(folder: Path, *, seed: int = 0) -> Path:
    return write_llama(folder / f"{seed}.gguf", tensor_type="Q4_1", layers=1, seed=seed)


class Load:
    """What a load of a model made of the store: panels as bytes, and whether it had to pack."""

    def __init__(self, path: Path, store: PackedStore) -> None:
        source = open_model(path)
        self.copy = store.copy_of(source)
        tensors = CountedTensors(source.tensors)
        weights = pack_matrices(build_program(source), tensors, pool=_native.Pool(2), kept=self.copy)
        self.panels = {name: panels(weight) for name, weight in weights.items()}
        self.num_read = tensors.num_read

    @property
    def was_packed(self) -> bool:
        return self.num_read > 0


class CountedTensors(Mapping[str, StoredTensor]):
    """Tensors that count how often one was taken."""

    def __init__(self, tensors: Mapping[str, StoredTensor]) -> None:
        self.tensors = tensors
        self.num_read = 0

    def __getitem__(self, name: str) -> StoredTensor:
        self.num_read += 1
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def panels(weight: _native.Weight) -> list[bytes]:
    return [weight.packed_panel(panel).tobytes() for panel in range(-(-weight.rows // 32))]


def files(store: PackedStore) -> list[Path]:
    return sorted(store.folder.iterdir()) if store.folder.exists() else []


def test_the_second_load_takes_every_byte_of_the_first_and_reads_no_tensor(tmp_path: Path) -> None:
    path, store = write_source(tmp_path), make_store(tmp_path)
    first, second = Load(path, store), Load(path, store)
    assert (first.was_packed, second.num_read) == (True, 0)
    assert second.panels == first.panels
    assert files(store) == [first.copy.path]


def test_a_file_has_the_bytes_of_the_matrices_and_a_head(tmp_path: Path) -> None:
    path, store = write_source(tmp_path), make_store(tmp_path)
    load = Load(path, store)
    source = open_model(path)
    stored = sum(len(tensor.data) for tensor in source.tensors.values() if len(tensor.shape) == 2)
    packed = sum(matrix.num_bytes for matrix in packed_layout(build_program(source)))
    status = load.copy.path.stat()
    assert status.st_size == HEAD + packed
    rows = source.tensors["token_embd.weight"].shape[0]
    assert packed - stored == (-rows % 32) * 256 // 32 * 34, "whole panels of the vocabulary, nothing else"
    assert status.st_mode & 0o777 == 0o600


def test_another_model_version_or_file_is_another_copy(tmp_path: Path) -> None:
    one, other = write_source(tmp_path, seed=1), write_source(tmp_path, seed=2)
    store = make_store(tmp_path)
    assert Load(one, store).panels != Load(other, store).panels
    assert not Load(one, store).was_packed
    assert not Load(other, store).was_packed
    assert Load(one, make_store(tmp_path, version="v2")).was_packed
    assert len(files(store)) == 3


@pytest.mark.parametrize("layout", [0, 99])
def test_another_layout_is_another_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: int) -> None:
    path = write_source(tmp_path)
    Load(path, make_store(tmp_path))
    monkeypatch.setattr(packed_store, "LAYOUT_VERSION", layout)
    assert Load(path, make_store(tmp_path)).was_packed


def test_an_edit_in_place_of_equal_size_and_time_is_never_served_stale(tmp_path: Path) -> None:
    path, store = write_source(tmp_path), make_store(tmp_path)
    before = Load(path, store)
    status = path.stat()
    edit(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    after = Load(path, store)
    assert after.was_packed
    assert after.panels != before.panels
    assert not Load(path, store).was_packed


def edit(path: Path) -> None:
    """Change one byte of a matrix, in another tick of the file system's clock."""
    source = open_model(path)
    data = source.tensors["blk.0.ffn_up.weight"].data
    position = path.read_bytes().index(data.tobytes()) + 100
    changed_ns = path.stat().st_ctime_ns
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes([data[100] ^ 1]))
    while path.stat().st_ctime_ns == changed_ns:
        path.chmod(0o600)


def test_a_file_that_took_the_place_of_another_is_packed(tmp_path: Path) -> None:
    path, store = write_source(tmp_path, seed=1), make_store(tmp_path)
    Load(path, store)
    status = path.stat()
    other = write_source(tmp_path, seed=2)
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)
    assert path.stat().st_size == status.st_size
    assert Load(path, store).was_packed


def test_a_model_that_changes_while_it_is_packed_is_not_kept(tmp_path: Path, caplog: Log) -> None:
    path, store = write_source(tmp_path), make_store(tmp_path)
    source = open_model(path)
    edit(path)
    keep(source, store.copy_of(source))
    assert files(store) == []
    assert "the model's file was changed while it was loaded" in caplog.text


def keep(source: ModelSource, copy: PackedCopy) -> None:
    """Offer the matrices of a source to its copy."""
    layout, arena, pool = arena_of(source)
    copy.keep(arena, layout, pool=pool)


def arena_of(source: ModelSource) -> tuple[tuple[PackedMatrix, ...], _native.WeightArena, _native.Pool]:
    layout, pool = packed_layout(build_program(source)), _native.Pool(1)
    arena = _native.WeightArena(sum(matrix.num_bytes for matrix in layout))
    for matrix in layout:
        data = source.tensors[matrix.name].data
        pool.pack_weight(matrix.tensor_type, data, matrix.rows, matrix.cols, arena, matrix.offset)
    return layout, arena, pool


def flip(position: int) -> Callable[[bytes], bytes]:
    def damage(content: bytes) -> bytes:
        return content[:position] + bytes([content[position] ^ 4]) + content[position:][1:]

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        flip(0),
        flip(18),
        flip(30),
        flip(200),
        flip(HEAD),
        flip(HEAD + 123_456),
        flip(-1),
        lambda content: b"",
        lambda content: content[:10],
        lambda content: content[:500],
        lambda content: content[:HEAD],
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: content[:HEAD] + bytes(len(content) - HEAD),
        lambda content: b"GGUF" + bytes(len(content) - 4),
        lambda content: content[:16] + b"\xff" * 4 + content[20:],
    ],
)
def test_a_damaged_file_is_packed_anew_with_one_warning(
    tmp_path: Path, caplog: Log, damage: Callable[[bytes], bytes]
) -> None:
    path, store = write_source(tmp_path), make_store(tmp_path)
    first = Load(path, store)
    first.copy.path.write_bytes(damage(first.copy.path.read_bytes()))
    second = Load(path, store)
    assert second.was_packed
    assert second.panels == first.panels
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "is damaged, the weights are packed anew" in caplog.text
    assert not Load(path, store).was_packed, "the new file is whole"


@pytest.mark.parametrize(
    "change",
    [
        {"format": 0},
        {"key": "another"},
        {"matrices": []},
        {"matrices": 7},
        {"matrices": [["a", "F32", 1, 1, 0]]},
        {"checksums": ""},
        {"checksums": "00"},
        {"checksums": "zz"},
        {"sources": [{}]},
        {"sources": None},
    ],
)
def test_a_head_that_is_signed_but_wrong_is_damage(tmp_path: Path, change: dict[str, Any]) -> None:
    path, store = write_source(tmp_path), make_store(tmp_path)
    first = Load(path, store)
    rewrite_head(first.copy.path, lambda facts: facts | change)
    assert Load(path, store).panels == first.panels
    assert not Load(path, store).was_packed


def rewrite_head(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Another head with a right digest in front of the same arena."""
    content = path.read_bytes()
    (size,) = struct.unpack_from("<I", content, 16)
    text = json.dumps(change(json.loads(content[52 : 52 + size]))).encode()
    head = content[:16] + struct.pack("<I", len(text)) + hashlib.sha256(text).digest() + text
    path.write_bytes(head.ljust(HEAD, b"\0") + content[HEAD:])


def test_a_head_that_is_no_object_is_damage(tmp_path: Path) -> None:
    path, store = write_source(tmp_path), make_store(tmp_path)
    values: list[object] = [[], 1, "x", None, {}]
    for value in values:
        rewrite_head(Load(path, store).copy.path, partial(replaced_by, value))
        assert Load(path, store).was_packed


def replaced_by(value: object, facts: dict[str, Any]) -> object:
    return value


def test_the_copy_of_another_model_under_this_ones_name_is_damage(tmp_path: Path) -> None:
    one, other = write_source(tmp_path, seed=1), write_source(tmp_path, seed=2)
    store = make_store(tmp_path)
    first = Load(one, store)
    shutil.copy(Load(other, store).copy.path, first.copy.path)
    assert Load(one, store).panels == first.panels


def test_a_folder_in_the_place_of_the_file_costs_no_load(tmp_path: Path, caplog: Log) -> None:
    path, store = write_source(tmp_path), make_store(tmp_path)
    Load(path, store).copy.path.unlink()
    Load(path, store).copy.path.unlink()
    store.copy_of(open_model(path)).path.mkdir()
    assert Load(path, store).was_packed
    assert "cannot be read, the weights are packed anew: Is a directory" in caplog.text


def test_small_models_and_a_limit_of_nothing_keep_nothing_and_say_nothing(tmp_path: Path, caplog: Log) -> None:
    path = write_source(tmp_path)
    for store in (make_store(tmp_path, smallest_bytes=10**7), make_store(tmp_path, limit_bytes=0)):
        Load(path, store)
        assert not store.folder.exists()
    assert not caplog.records


def test_a_model_over_the_limit_is_not_kept_and_the_fix_is_said(tmp_path: Path, caplog: Log) -> None:
    Load(write_source(tmp_path), store := make_store(tmp_path, limit_bytes=1000))
    assert files(store) == []
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "TWOSTROKE_PACKED_GB" in record.message


def test_the_longest_unused_go_first_when_all_together_pass_the_limit(tmp_path: Path) -> None:
    paths = [write_source(tmp_path, seed=seed) for seed in range(4)]
    size = Load(paths[0], make_store(tmp_path)).copy.path.stat().st_size
    store = make_store(tmp_path, limit_bytes=3 * size)
    copies = [Load(path, store).copy.path for path in paths[:3]]
    for number, copy in enumerate(copies):
        os.utime(copy, ns=(number, number))
    assert not Load(paths[0], store).was_packed  # used again: now the second is the longest unused
    newest = Load(paths[3], store).copy.path
    assert files(store) == sorted([copies[0], copies[2], newest])


def test_nothing_is_thrown_out_for_what_is_kept_nowhere(tmp_path: Path) -> None:
    paths = [write_source(tmp_path, seed=seed) for seed in range(2)]
    kept = Load(paths[0], make_store(tmp_path)).copy.path
    Load(paths[1], make_store(tmp_path, limit_bytes=1000))
    assert kept.exists()


def test_a_folder_that_cannot_be_written_gives_one_warning(
    tmp_path: Path, caplog: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**options: object) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    store = make_store(tmp_path)
    assert Load(write_source(tmp_path), store).was_packed
    (record,) = caplog.records
    assert "Read-only file system" in record.message
    assert "TWOSTROKE_PACKED_GB=0 keeps none" in record.message


def test_a_file_in_the_place_of_the_folder_gives_one_warning(tmp_path: Path, caplog: Log) -> None:
    store = make_store(tmp_path)
    store.folder.write_text("not a folder")
    assert Load(write_source(tmp_path), store).was_packed
    (record,) = caplog.records
    assert "the next start packs again" in record.message
    assert store.folder.read_text() == "not a folder"


def test_a_disk_that_is_nearly_full_is_left_alone(tmp_path: Path, caplog: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage(10**6, 0, 10**5))
    store = make_store(tmp_path)
    Load(write_source(tmp_path), store)
    assert files(store) == []
    assert "more than half of the 0.00 GB that are free" in caplog.text


def test_a_disk_that_fills_up_while_writing_leaves_nothing(
    tmp_path: Path, caplog: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: Any, head: object, data: object) -> NoReturn:
        file.write(b"x" * 100)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path, store = write_source(tmp_path), make_store(tmp_path)
    monkeypatch.setattr(packed_store, "write_packed", fail)
    assert Load(path, store).was_packed
    assert files(store) == []
    (record,) = caplog.records
    assert "No space left on device" in record.message
    monkeypatch.undo()
    Load(path, store)
    assert not Load(path, store).was_packed


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.model.test_packed_store import Load, make_store
from twostroke.model import packed_file
folder, after = Path(sys.argv[1]), int(sys.argv[2])
whole = packed_file._write_all
calls = []
def write_some(file, data):
    calls.append(1)
    if len(calls) > after:
        file.write(data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    whole(file, data)
packed_file._write_all = write_some
Load(folder / "0.gguf", make_store(folder))
"""


@pytest.mark.parametrize("num_writes", [0, 1])
def test_a_process_killed_while_it_writes_leaves_nothing_that_loads(tmp_path: Path, num_writes: int) -> None:
    path, store = write_source(tmp_path), make_store(tmp_path)
    roots = [str(Path(twostroke.__file__).parent.parent), str(Path(__file__).parent.parent.parent)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(roots)}
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(num_writes)], env=env, timeout=100, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    (rest,) = files(store)
    assert rest.name.startswith(".packed-")
    assert store.entries() == []
    load = Load(path, store)
    assert load.was_packed
    assert files(store) == [load.copy.path], "what was left is deleted"
    assert not Load(path, store).was_packed


def test_a_file_somebody_writes_now_is_not_taken_for_abandoned(tmp_path: Path) -> None:
    path, store = write_source(tmp_path), make_store(tmp_path)
    store.folder.mkdir()
    half, empty = store.folder / ".packed-live", store.folder / ".packed-new"
    empty.touch()
    with half.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(b"half")
        file.flush()
        Load(path, store)
        assert half.exists()
    Load(path, make_store(tmp_path, version="next"))
    assert not half.exists()
    assert empty.exists()


def test_many_loads_at_once_all_get_the_weights_and_leave_one_file(tmp_path: Path, caplog: Log) -> None:
    path, store = write_source(tmp_path), make_store(tmp_path)
    expected = Load(path, make_store(tmp_path, limit_bytes=0)).panels
    results: list[bool] = []

    def load() -> None:
        results.extend(Load(path, store).panels == expected for _ in range(4))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 16
    assert len(files(store)) == 1
    assert not caplog.records


def test_a_copy_replaced_or_deleted_under_a_loaded_model_changes_nothing(tmp_path: Path) -> None:
    path, store = write_source(tmp_path), make_store(tmp_path)
    Load(path, store)
    source = open_model(path)
    layout = packed_layout(build_program(source))
    arena = store.copy_of(source).find(layout, pool=_native.Pool(1))
    assert arena is not None
    assert arena.is_mapped
    before = arena.data.tobytes()
    (file,) = files(store)
    file.unlink()
    file.write_bytes(b"something else")
    assert arena.data.tobytes() == before


def test_entries_name_sources_and_tell_what_is_outdated(tmp_path: Path) -> None:
    paths = [write_source(tmp_path, seed=seed) for seed in range(3)]
    store = make_store(tmp_path)
    copies = [Load(path, store).copy.path for path in paths]
    for number, copy in enumerate(copies):
        os.utime(copy, ns=(number, number))
    paths[0].unlink()
    edit(paths[1])
    (store.folder / "foreign.packed").write_bytes(b"x")
    foreign, *ours = store.entries()
    assert (foreign.sources, foreign.num_bytes, foreign.is_usable) == ((), 1, False)
    assert [entry.sources[0].path for entry in ours] == paths[::-1], "the last used first"
    assert [entry.is_usable for entry in ours] == [True, False, False]
    assert [entry.num_bytes for entry in ours] == [copy.stat().st_size for copy in copies[::-1]]


def test_prune_deletes_what_no_model_would_take(tmp_path: Path) -> None:
    paths = [write_source(tmp_path, seed=seed) for seed in range(2)]
    store = make_store(tmp_path)
    kept, gone = (Load(path, store).copy.path for path in paths)
    old = Load(paths[0], make_store(tmp_path, version="older")).copy.path
    (store.folder / ".packed-rest").write_bytes(b"x")
    (store.folder / "unrelated.txt").write_bytes(b"x")
    paths[1].unlink()
    assert {entry.path for entry in store.prune()} == {gone, old}
    assert files(store) == sorted([kept, store.folder / "unrelated.txt"])
    assert store.prune() == []
    assert not Load(paths[0], store).was_packed


def test_a_store_that_was_never_used_has_no_entries(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert (store.entries(), store.prune()) == ([], [])
    assert not store.folder.exists()


def test_a_file_in_small_pages_is_left_and_the_weights_are_packed(
    tmp_path: Path, caplog: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, store = write_source(tmp_path), make_store(tmp_path)
    copy = Load(path, store).copy.path
    written_ns = copy.stat().st_mtime_ns
    monkeypatch.setattr(packed_store, "is_fast", lambda arena: False)
    assert Load(path, store).was_packed
    assert copy.stat().st_mtime_ns == written_ns
    assert not caplog.records


def test_file_names_differ_and_tell_nothing() -> None:
    assert file_name("a") != file_name("b")
    assert file_name("a") == file_name("a")
    assert len(file_name("x" * 1000)) == len(file_name(""))
