"""Vectors equal the pooled final states of the transformers library, for folders that sentence-transformers saves."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders_llm import config_of
from tests.builders_models import ORIGINAL_CONTEXT, VOCAB_SIZE, TinyModel, save_tiny_model
from twostroke.core.pooling import PoolingKind
from twostroke.llm import LLM

pytestmark = pytest.mark.oracle
MODES = {PoolingKind.MEAN: "mean_tokens", PoolingKind.CLS: "cls_token", PoolingKind.LAST: "lasttoken"}
TINY = [
    TinyModel("llama_embeds", "Llama"),
    TinyModel("qwen3_embeds", "Qwen3", {"head_dim": 24}),
    TinyModel("gemma3_embeds", "Gemma3", {"head_dim": 24, "sliding_window": 7, "num_hidden_layers": 7}),
]


def saved(tiny: TinyModel, folder: Path, kind: PoolingKind) -> Any:
    model = save_tiny_model(tiny, folder)
    modules = [{"type": "x.Transformer", "path": ""}, {"type": "x.Pooling", "path": "1_Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{MODES[kind]}": True}))
    return model


@pytest.mark.parametrize("kind", PoolingKind)
@pytest.mark.parametrize("tiny", TINY, ids=lambda tiny: tiny.name)
def test_vectors_are_those_of_transformers(tmp_path: Path, tiny: TinyModel, kind: PoolingKind) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    model = saved(tiny, tmp_path / "model", kind)
    random = np.random.default_rng(3)
    given = [random.integers(3, VOCAB_SIZE, count).tolist() for count in (1, 9, 3 * ORIGINAL_CONTEXT)]
    with LLM(tmp_path / "model", config=config_of(tmp_path), kv="f32") as llm:
        got = llm.embed(given)
    for token_ids, vector in zip(given, got, strict=True):
        with torch.no_grad():
            states = model.model(torch.tensor([token_ids])).last_hidden_state[0].double().numpy()
        pooled = {PoolingKind.MEAN: states.mean(0), PoolingKind.CLS: states[0], PoolingKind.LAST: states[-1]}[kind]
        np.testing.assert_allclose(vector, pooled / np.linalg.norm(pooled), rtol=0, atol=1e-5)
