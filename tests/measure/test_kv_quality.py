"""Quality of KV precisions on a tiny model: distances are to the f32 cache, at the positions asked for."""

from pathlib import Path

import numpy as np
import pytest

from tests.builders_llm import write_puppet
from twostroke.errors import ConfigError
from twostroke.llm import LLM
from twostroke.measure.kv_quality import (
    POSITIONS,
    KVQuality,
    _cut,
    _distance,
    kv_bytes_per_token,
    measure_kv_quality,
)
from twostroke.program.kv_precision import kv_head_bytes


def test_stretches_of_a_depth_follow_each_other_and_share_no_token() -> None:
    ids = list(range(2 * (10 + POSITIONS)))
    parts = _cut(ids, {10: 2, 3: 1})
    assert [part[0] for part in parts[10]] == [0, 10 + POSITIONS]
    assert {len(part) for part in parts[10]} == {10 + POSITIONS}
    assert parts[3] == [ids[: 3 + POSITIONS]]


def test_a_short_text_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=f"the text has 9 tokens, the depths need {2 * (10 + POSITIONS)}"):
        _cut(list(range(9)), {10: 2})


def test_the_distance_is_the_divergence_of_the_laws() -> None:
    truth, other = (
        np.log(np.array([[0.5, 0.5], [0.9, 0.1]], np.float32)),
        np.log(np.array([[0.25, 0.75]] * 2, np.float32)),
    )
    kl, agreement = _distance(truth, other + 3)  # a constant changes no law
    expected = [0.5 * np.log(2) + 0.5 * np.log(0.5 / 0.75), 0.9 * np.log(0.9 / 0.25) + 0.1 * np.log(0.1 / 0.75)]
    np.testing.assert_allclose(kl, expected, rtol=1e-5)
    assert agreement in (0.0, 0.5)  # the first row is a tie
    assert _distance(truth, truth)[0].tolist() == [0, 0]


def test_mean_and_percentile_are_over_positions() -> None:
    quality = KVQuality("int8", 128, (0.0, 1.0, 2.0), 1.0)
    assert quality.mean == 1.0
    assert quality.p99 == pytest.approx(1.98)


def test_every_precision_is_measured_at_every_depth(tmp_path: Path) -> None:
    path = write_puppet(tmp_path / "puppet.gguf")
    opened: list[str] = []

    def open_llm(precision: str) -> LLM:
        opened.append(precision)
        return LLM(path, kv=precision, threads=1)

    found = measure_kv_quality(open_llm, "what is it? " * 60, precisions=("f32", "int8"), stretches={16: 2, 40: 1})
    assert opened == ["f32", "f32", "int8"]
    assert [(each.precision, each.depth, len(each.kl)) for each in found] == [
        ("f32", 16, 2 * POSITIONS),
        ("f32", 40, POSITIONS),
        ("int8", 16, 2 * POSITIONS),
        ("int8", 40, POSITIONS),
    ]
    assert all(each.mean == 0 and each.top1_agreement == 1 for each in found[:2]), "a cache is as good as itself"


def test_bytes_of_a_token_count_every_layer(tmp_path: Path) -> None:
    with LLM(write_puppet(tmp_path / "puppet.gguf"), threads=1) as llm:
        (group,) = llm.program.kv_groups
        expected = 2 * len(group.layers) * group.num_kv_heads * kv_head_bytes("int8", group.head_dim)
        assert kv_bytes_per_token(llm.program, "int8") == expected
