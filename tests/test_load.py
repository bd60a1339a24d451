"""From file to engine: what is read off the file, and options that are out of range."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.builders_cost import make_cost
from tests.builders_gguf import write_gemma3, write_llama
from tests.builders_llm import TEMPLATE, config_of, open_llm, write_puppet
from tests.cases.puppet import EOS
from twostroke.config import Config
from twostroke.core.clock import WallClock
from twostroke.core.cost_file import cost_to_json
from twostroke.engine.cores import usable_cores
from twostroke.engine.cost_fit import assumed_cost
from twostroke.errors import ChatTemplateError, ConfigError, ModelNotFoundError
from twostroke.load import (
    BLOCK_SIZE,
    DEFAULT_PRECISION,
    MAX_ROWS,
    LoadedModel,
    _step_counts,
    _threads,
    default_context,
    kv_precision,
    load_model,
    load_text,
    packed_store,
)
from twostroke.model.defaults import ModelDefaults
from twostroke.model.families import build_program
from twostroke.model.open import open_model
from twostroke.phase_threads import PhaseThreads
from twostroke.program.cost import Row, fold_costs


def load(
    path: Path, *, defaults: ModelDefaults | None = None, context: int | None = None, kv: str | None = None
) -> LoadedModel:
    return load_model(
        path,
        config=config_of(path.parent),
        clock=WallClock(),
        threads=None,
        context=context,
        kv=kv,
        defaults=defaults or ModelDefaults(),
    )


def test_a_loaded_model_is_sized_for_its_context(tmp_path: Path) -> None:
    loaded = load(write_puppet(tmp_path / "puppet.gguf", context=100))
    assert loaded.kv.context == 100
    assert loaded.kv.spec.block_size == BLOCK_SIZE
    assert loaded.kv.spec.precision == DEFAULT_PRECISION
    assert loaded.kv.spec.num_blocks == (MAX_ROWS * (7 + 1),)
    assert loaded.threads == 1
    assert loaded.text.end_ids == {EOS}
    loaded.reader.close()
    loaded.reader.close()


def test_every_window_has_blocks_of_its_own(tmp_path: Path) -> None:
    loaded = load(write_gemma3(tmp_path / "gemma.gguf", tensor_type="Q8_0"))
    assert len(loaded.kv.spec.num_blocks) == len(loaded.program.kv_groups) == 2
    loaded.reader.close()


def test_a_file_that_is_not_there_is_said_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        load(tmp_path / "none.gguf")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("wish", "asked", "context"), [(50, None, 50), (50, 60, 60), (None, None, 100)])
def test_a_publishers_context_stands_in_for_none(
    tmp_path: Path, wish: int | None, asked: int | None, context: int
) -> None:
    file = write_puppet(tmp_path / "puppet.gguf", context=100)
    loaded = load(file, defaults=ModelDefaults(context=wish), context=asked)
    assert loaded.kv.context == context
    loaded.reader.close()


def test_a_publishers_context_is_at_most_the_models(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program = build_program(open_model(write_puppet(tmp_path / "puppet.gguf", context=100)))
    assert default_context(program, ModelDefaults(context=100)) == 100
    assert not caplog.records
    assert default_context(program, ModelDefaults(context=101)) == 100
    assert "101" in caplog.text


def test_a_template_of_the_file_goes_before_any_reason_for_none(tmp_path: Path) -> None:
    text = load_text(open_model(write_puppet(tmp_path / "with.gguf")), home=tmp_path, why_no_template="in Go")
    assert text.chat_template.source == TEMPLATE
    text = load_text(
        open_model(write_puppet(tmp_path / "without.gguf", template=None)), home=tmp_path, why_no_template="in Go"
    )
    with pytest.raises(ChatTemplateError, match=r"^in Go$"):
        text.chat_template.render([{"role": "user", "content": "hi"}])


def test_the_built_tokenizer_is_kept_below_home(tmp_path: Path) -> None:
    source = open_model(write_puppet(tmp_path / "puppet.gguf"))
    first = load_text(source, home=tmp_path / "home")
    again = load_text(source, home=tmp_path / "home")
    assert first.tokenizer.encode("hello") == again.tokenizer.encode("hello")


@pytest.mark.parametrize("kv", ["f32", "f16", "bf16", "int8"])
def test_precisions_are_four(kv: str) -> None:
    assert kv_precision(kv) == kv


@pytest.mark.parametrize("kv", ["", "F32", "int4", "q4"])
def test_another_precision_is_told_the_four(kv: str) -> None:
    with pytest.raises(ConfigError, match=f"kv is '{kv}': it must be one of f32, f16, bf16, int8"):
        kv_precision(kv)


def test_threads_are_the_callers_then_the_environments_then_one_per_core(tmp_path: Path) -> None:
    config = Config(home=tmp_path, threads=3, ollama_models=tmp_path)
    assert _threads(5, config) == 5
    assert _threads(None, config) == 3
    nobody = Config(home=tmp_path, ollama_models=tmp_path)
    assert _threads(None, nobody) == usable_cores()


def test_threads_that_cannot_run_at_once_are_warned_of_with_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("twostroke.load.usable_cpus", lambda: 4)
    monkeypatch.setattr("twostroke.load.usable_cores", lambda: 2)
    config = Config(home=tmp_path, threads=9, ollama_models=tmp_path)
    assert _threads(4, config) == 4
    assert caplog.messages == []
    assert _threads(None, config) == 9
    (said,) = caplog.messages
    assert said.startswith(
        "9 threads are asked for, this process may use 4 CPUs: threads that cannot run at the same time"
    )
    assert said.endswith("take 2 or fewer")


@pytest.mark.parametrize("threads", [0, -1, 1025, True])
def test_threads_out_of_range_name_the_range(tmp_path: Path, threads: int) -> None:
    with pytest.raises(ConfigError, match="from 1 to 1024"):
        _threads(threads, Config(home=tmp_path, ollama_models=tmp_path))


def test_step_counts_price_a_step_as_the_program_does(tmp_path: Path) -> None:
    program = build_program(open_model(write_llama(tmp_path / "llama.gguf", tensor_type="Q8_0")))
    cost = fold_costs(program, kv_precision="bf16")
    counts = _step_counts(program, cost)
    step, without_head = cost.step([Row(100, 1)]), cost.step([Row(100, 1, needs_logits=False)])
    assert counts.weight_bytes == without_head.weight_bytes
    assert counts.weight_bytes + counts.head_bytes == step.weight_bytes
    assert counts.kv_bytes * 101 == step.kv_bytes
    assert counts.token_ops + counts.pair_ops * 101 == without_head.total_flops
    assert counts.head_ops == step.total_flops - without_head.total_flops > 0
    assert counts.windows == ((None, 1.0),)


def test_groups_share_attention_by_their_layers_and_heads(tmp_path: Path) -> None:
    program = build_program(open_model(write_gemma3(tmp_path / "gemma3.gguf", tensor_type="Q8_0")))
    counts = _step_counts(program, fold_costs(program, kv_precision="bf16"))
    assert [window for window, _ in counts.windows] == [group.window for group in program.kv_groups]
    assert sum(share for _, share in counts.windows) == pytest.approx(1.0)
    layers = [len(group.layers) for group in program.kv_groups]
    assert [share * sum(layers) for _, share in counts.windows] == pytest.approx(layers)


def test_a_cost_the_dyno_left_is_where_the_engine_starts(tmp_path: Path) -> None:
    path = write_puppet(tmp_path / "puppet.gguf", context=100)
    measured = make_cost(token_s=0.25)
    with closing(load(path)) as model:
        assert (model.fit.start, model.fit.is_measured) == (assumed_cost(model.counts), False)
        file = model.cost_key.path(config_of(tmp_path).home)
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"cost": cost_to_json(measured), "threads": {"prefill": 1, "decode": 1}}))
    with closing(load(path)) as model:
        assert (model.fit.start, model.fit.is_measured) == (measured, True)
        assert model.fit.cost() == measured
        assert (model.reader.threads, model.threads) == (PhaseThreads(1, 1), 1)
    with closing(load(path, kv="f16")) as model:
        assert not model.fit.is_measured


def test_a_model_that_was_loaded_once_is_not_packed_again_and_answers_the_same(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "llama.gguf", tensor_type="F32", layers=12)  # 19 MB: enough to be kept
    answers = []
    for _ in range(2):
        with open_llm(path) as llm:
            answers.append(llm.logits([1, 5, 7, 9]).tobytes())
    (kept,) = packed_store(config_of(tmp_path)).entries()
    assert (kept.sources[0].path, kept.is_usable) == (path, True)
    assert answers[0] == answers[1]


def test_a_damaged_copy_of_a_model_changes_no_answer(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "llama.gguf", tensor_type="F32", layers=12)
    answers = []
    for _ in range(2):
        with open_llm(path) as llm:
            answers.append(llm.logits([1, 5, 7, 9]).tobytes())
        (kept,) = packed_store(config_of(tmp_path)).entries()
        with kept.path.open("r+b") as file:
            file.seek(-1000, 2)
            file.write(bytes(100))
    assert answers[0] == answers[1]


def test_packed_weights_lie_in_the_cache_directory_with_its_limit(tmp_path: Path) -> None:
    store = packed_store(Config(home=tmp_path, ollama_models=tmp_path, packed_bytes=7))
    assert (store.folder, store.limit_bytes) == (tmp_path / "packed", 7)
