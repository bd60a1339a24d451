"""What a model needs of memory, known from its headers: no less than what loading it takes."""

from pathlib import Path

import pytest

from tests.builders_llm import add_ollama_model, config_of, open_llm, puppet_bytes, write_puppet
from twostroke.errors import CapacityError, ConfigError, ModelNotFoundError
from twostroke.footprint import LEAST_CONTEXT, Footprint, footprint, free_memory_bytes
from twostroke.llm import LLM


def test_weights_are_those_that_are_packed_and_kv_is_that_of_one_stated_context(tmp_path: Path) -> None:
    path = write_puppet(tmp_path / "puppet.gguf", context=1024)
    stated = footprint(str(path), config=config_of(tmp_path), context=64, kv="f32")
    half = footprint(str(path), config=config_of(tmp_path), context=64, kv="bf16")
    with open_llm(path, context=64) as llm:
        num_rows = 32  # of a step: as many contexts the store of a model has where memory is plenty
        assert (num_rows - 1) * stated.kv_bytes < llm.kv_bytes <= num_rows * stated.kv_bytes
        assert stated.weight_bytes >= llm.weight_bytes > 0
    assert (stated.context, stated.kv_bytes) == (64, 2 * half.kv_bytes)


@pytest.mark.parametrize(("most", "context"), [(1024, 1024), (10 * LEAST_CONTEXT, LEAST_CONTEXT)])
def test_without_a_stated_context_a_conversation_must_fit(tmp_path: Path, most: int, context: int) -> None:
    path = write_puppet(tmp_path / "puppet.gguf", context=most)
    assert footprint(str(path), config=config_of(tmp_path)).context == context


def test_the_context_a_publisher_wishes_is_a_stated_one(tmp_path: Path) -> None:
    name = add_ollama_model(tmp_path, "puppet", file=puppet_bytes(), num_ctx=48)
    assert footprint(name, config=config_of(tmp_path)).context == 48


def test_what_cannot_be_loaded_has_none(tmp_path: Path) -> None:
    path = write_puppet(tmp_path / "puppet.gguf", context=1024)
    with pytest.raises(ConfigError, match="kv is 'f8'"):
        footprint(str(path), config=config_of(tmp_path), kv="f8")
    with pytest.raises(ConfigError, match="1 to 1024 tokens"):
        footprint(str(path), config=config_of(tmp_path), context=2000)
    with pytest.raises(ModelNotFoundError):
        footprint(str(tmp_path / "none.gguf"), config=config_of(tmp_path))


def test_kv_that_may_be_half_of_the_memory_needs_twice_its_size() -> None:
    few = Footprint(weight_bytes=6 * 10**9, kv_bytes=2 * 10**9, context=4096)
    many = Footprint(weight_bytes=10**9, kv_bytes=5 * 10**9, context=4096)
    assert (few.total_bytes, many.total_bytes) == (8 * 10**9, 10 * 10**9)
    assert str(few) == "weights of 6.00 GB + KV of 4096 tokens, 2.00 GB = 8.00 GB"
    assert str(many).endswith("of which at most 50% of the memory may be = 10.00 GB")


def test_a_model_that_is_given_its_footprint_loads_and_one_that_is_given_less_does_not(tmp_path: Path) -> None:
    path = write_puppet(tmp_path / "puppet.gguf", context=1024)
    config = config_of(tmp_path)
    need = footprint(str(path), config=config, context=512, kv="f32")
    with LLM(path, config=config, kv="f32", context=512, memory_bytes=need.total_bytes) as llm:
        assert need.weight_bytes + llm.kv_bytes <= need.total_bytes
    with pytest.raises(CapacityError, match="a context of 512 tokens needs"):
        LLM(path, config=config, kv="f32", context=512, memory_bytes=need.total_bytes - 2)


def test_free_memory_is_counted_in_bytes() -> None:
    assert free_memory_bytes() > 10**6


def test_a_draft_model_needs_its_weights_and_its_kv_too(tmp_path: Path) -> None:
    path = write_puppet(tmp_path / "puppet.gguf", context=1024)
    config = config_of(tmp_path)
    alone = footprint(str(path), config=config, context=64)
    both = footprint(str(path), config=config, context=64, draft_model=str(path))
    assert (both.weight_bytes, both.kv_bytes) == (2 * alone.weight_bytes, 2 * alone.kv_bytes)
