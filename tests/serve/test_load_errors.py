"""What strangers hear of a model that could not be loaded: the arithmetic and the reason, none of our folders."""

import logging

import pytest

from twostroke.errors import CapacityError, DownloadError, ModelFileError, ModelNotFoundError
from twostroke.footprint import Footprint
from twostroke.serve.load_errors import as_load_error, no_room
from twostroke.serve.model_slot import ModelEntry

ENTRY = ModelEntry(("small", "alias"), "/srv/secret models/small.gguf")
NEED = Footprint(weight_bytes=3_000_000_000, kv_bytes=500_000_000, context=4096)


def test_a_load_without_room_tells_the_arithmetic_and_what_would_fit() -> None:
    assert no_room("small", NEED, free_bytes=2_345_000_000, others=[]) == (
        f"small needs {NEED}; 2.35 GB are free: take a smaller model or file, a shorter --context or --kv int8"
    )
    assert "= 3.50 GB" in str(NEED)


def test_who_could_make_room_is_named() -> None:
    assert no_room("small", NEED, free_bytes=0, others=["a", "b"]) == (
        f"small needs {NEED}; 0.00 GB are free with every idle model unloaded: ask again when a, b has answered"
    )


def test_no_memory_is_a_code_of_its_own_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    told = as_load_error(CapacityError("2.10 GB of KV, 1.30 GB is free"), ENTRY)
    assert (told.status, told.code, told.param) == (503, "insufficient_memory", "model")
    assert str(told) == "2.10 GB of KV, 1.30 GB is free"
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
        (logging.WARNING, "small is not loaded: 2.10 GB of KV, 1.30 GB is free")
    ]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModelFileError("/srv/secret models/small.gguf", "it is damaged"), "small.gguf: it is damaged"),
        (ModelNotFoundError("/srv/secret models/none.gguf: there is no such file"), "none.gguf: there is no such file"),
        (DownloadError("~/.cache/hub/blobs/ab12: the disk is full"), "ab12: the disk is full"),
        (OSError("cannot read '/var/lib/x/small.gguf'"), "cannot read 'small.gguf'"),
        (OSError("open:/var/lib/x/small.gguf"), "open:small.gguf"),
        (DownloadError("see https://models.example/a/b, then a/b"), "see https://models.example/a/b, then a/b"),
    ],
)
def test_a_reason_is_told_without_the_folders_it_names(
    caplog: pytest.LogCaptureFixture, error: Exception, reason: str
) -> None:
    told = as_load_error(error, ENTRY)
    assert (told.status, told.code, told.param) == (503, "model_load_failed", "model")
    assert str(told) == f"small could not be loaded: {reason}"
    assert str(error) in caplog.text, "the log has it whole"


def test_a_fault_of_ours_is_told_as_such_and_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    told = as_load_error(ZeroDivisionError("of /srv/secret"), ENTRY)
    assert str(told) == "small could not be loaded: internal error, see the server's log"
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_a_source_that_is_a_name_has_no_folder_to_hide() -> None:
    entry = ModelEntry(("ollama:small",), "ollama:small")
    assert str(as_load_error(CapacityError("ollama:small is large"), entry)) == "ollama:small is large"
