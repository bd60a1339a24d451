"""`twostroke bench --kv-quality`: the table, the JSON, and what is refused."""

from pathlib import Path

import pytest

from twostroke.cli import app
from twostroke.cli.bench_kv import json_of, lines_of, read_text
from twostroke.errors import ConfigError
from twostroke.measure.kv_quality import KVQuality

FOUND = [
    KVQuality("bf16", 128, (0.0, 0.002), 1.0),
    KVQuality("bf16", 4096, (0.001,), 1.0),
    KVQuality("int8", 128, (0.01, 0.03), 0.5),
    KVQuality("int8", 4096, (0.02,), 1.0),
]
BYTES = {"f32": 400, "bf16": 200, "int8": 106}
ABOUT = {"model": "tiny", "isa": "avx2", "text": "book.txt"}


def test_a_line_per_precision_has_bytes_beside_quality() -> None:
    about, counts, heading, bf16, int8 = lines_of(FOUND, BYTES, ABOUT)
    assert about.startswith("tiny  avx2, KL to an f32 KV cache in nats")
    assert counts == "2 positions at depth 128, 1 positions at depth 4096; text: book.txt"
    assert heading.split() == ["kv", "bytes/token", "of", "f32", "depth", "128", "depth", "4096"]
    assert bf16.split()[:4] == ["bf16", "200", "50%", "0.001000"]
    assert int8.split()[:4] == ["int8", "106", "26%", "0.020000"]
    assert "50.0%" in int8


def test_json_has_the_same_numbers() -> None:
    report = json_of(FOUND, BYTES, ABOUT)
    assert report["bytes_per_token"] == BYTES
    quality = report["quality"]
    assert isinstance(quality, list)
    assert quality[2] == {
        "kv": "int8",
        "depth": 128,
        "positions": 2,
        "kl_mean": 0.02,
        "kl_p99": pytest.approx(0.0298),
        "kl_max": 0.03,
        "top1_agreement": 0.5,
    }


def test_a_text_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xff")
    for name in ("missing", "bytes"):
        with pytest.raises(ConfigError, match=f"--text .*{name} cannot be read as UTF-8 text"):
            read_text(tmp_path / name)
    assert len(read_text(None)) > 100_000


def test_text_without_the_mode_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["bench", "--text", "book.txt"]) != 0
    assert "--text is read for --kv-quality alone" in capsys.readouterr().err
