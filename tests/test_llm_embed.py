"""LLM.embed: which models may, what they are told, and what stands behind a text."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders_gguf import CONTEXT, WIDTH, write_model
from tests.builders_llm import config_of, open_llm, write_puppet
from tests.cases.make_malformed import T_BOOL, T_U32
from twostroke.core.event import FinishEvent, TokenEvent
from twostroke.core.pooling import PoolingKind
from twostroke.core.sequence import FinishReason
from twostroke.embedding import EmbeddingParams
from twostroke.errors import CapacityError, ParamsError, PromptError
from twostroke.llm import LLM


def open_pooled(folder: Path, *, kind: int = 1, keys: tuple[Any, ...] = ()) -> LLM:
    path = folder / "pooled.gguf"
    write_model(path, "llama", tensor_type="F32", keys=[("llama.pooling_type", T_U32, kind), *keys])
    return LLM(path, config=config_of(folder))


def test_one_text_or_several_are_rows_of_float32(tmp_path: Path) -> None:
    with open_pooled(tmp_path) as llm:
        one, two = llm.embed("why?"), llm.embed(["why?", "how?"])
        assert (one.shape, two.shape, two.dtype.name) == ((1, WIDTH), (2, WIDTH), "float32")
        assert one[0].tobytes() == two[0].tobytes()
        assert llm.pooling is not None
        assert (llm.pooling.kind, llm.pooling.width) == (PoolingKind.MEAN, WIDTH)


def test_the_finish_event_comes_alone_with_the_vector_and_the_books(tmp_path: Path) -> None:
    with open_pooled(tmp_path) as llm:
        events: list[Any] = []
        handle = llm.submit("why is it so?", EmbeddingParams(), on_event=events.append, request_id="mine")
        result = handle.result(10)
        (finish,) = events
        assert isinstance(finish, FinishEvent)
        assert not any(isinstance(event, TokenEvent) for event in events)
        assert np.frombuffer(finish.embedding, "<f4").shape == (WIDTH,)
        assert (finish.reason, finish.usage.completion_tokens) == (FinishReason.STOP, 0)
        assert finish.usage.prompt_tokens == handle.num_prompt_tokens == len(llm.encode("why is it so?"))
        assert (result.request_id, result.text, result.token_ids) == ("mine", "", ())
        assert result.embedding == finish.embedding
        assert result.ledger.total_s == pytest.approx(result.timing.e2e_s, abs=1e-9)
        now = llm.snapshot()
        assert (now.num_running, now.blocks_held) == (0, 0)


def test_a_model_that_writes_does_not_embed(tmp_path: Path) -> None:
    with open_llm(write_puppet(tmp_path / "puppet.gguf")) as llm:
        with pytest.raises(ParamsError, match="its file names no pooling") as refused:
            llm.embed("why?")
        assert refused.value.field == "model"
        assert llm.generate("?")[0].text == "The sky"


def test_a_model_that_embeds_does_not_write(tmp_path: Path) -> None:
    with open_pooled(tmp_path) as llm:
        for ask in (lambda: llm.generate("why?"), lambda: llm.logits([5]), lambda: llm.beam_search("why?")):
            with pytest.raises(
                ParamsError, match=r"is a model that embeds \(mean pooling\): it writes no answers"
            ) as refused:
                ask()
            assert refused.value.field == "model"


@pytest.mark.parametrize("wish", [WIDTH - 1, WIDTH + 1, 1])
def test_vectors_that_were_not_made_to_be_cut_are_not(tmp_path: Path, wish: int) -> None:
    with open_pooled(tmp_path) as llm:
        with pytest.raises(ParamsError, match=f"vectors have {WIDTH} numbers and were not made to be cut") as refused:
            llm.embed("why?", dimensions=wish)
        assert refused.value.field == "dimensions"
        assert llm.embed("why?", dimensions=WIDTH).shape == (1, WIDTH)


@pytest.mark.parametrize("wish", [0, -1, True, 2.0, "8"])
def test_dimensions_that_are_none_are_refused(wish: Any) -> None:
    with pytest.raises(ParamsError, match="dimensions is"):
        EmbeddingParams(dimensions=wish)


def test_a_text_may_fill_the_whole_context_and_no_more(tmp_path: Path) -> None:
    with open_pooled(tmp_path) as llm:
        assert llm.embed([5] * CONTEXT).shape == (1, WIDTH)
        with pytest.raises(CapacityError, match=f"{CONTEXT + 1} prompt tokens"):
            llm.embed([5] * (CONTEXT + 1))


def test_ids_outside_and_empty_texts_are_refused_and_the_next_is_answered(tmp_path: Path) -> None:
    with open_pooled(tmp_path) as llm:
        with pytest.raises(PromptError):
            llm.embed([10**6])
        with pytest.raises(PromptError):
            llm.embed([[]])
        with pytest.raises(PromptError, match="a text or its token ids are embedded"):
            llm.submit([{"role": "user", "content": "why?"}], EmbeddingParams())
        assert llm.embed("why?").shape == (1, WIDTH)


@pytest.mark.parametrize("wants", [True, False])
def test_the_file_says_whether_its_end_token_stands_behind_a_text(tmp_path: Path, wants: bool) -> None:
    eos = 2
    with open_pooled(tmp_path, kind=3, keys=(("tokenizer.ggml.add_eos_token", T_BOOL, wants),)) as llm:
        ids = llm.encode("why?")
        handle = llm.submit("why?", EmbeddingParams())
        assert handle.num_prompt_tokens == len(ids) + wants
        closed = [*ids, eos] if wants else ids
        assert handle.result(10).embedding == llm.embed(closed)[0].tobytes()  # one that is there is not said twice


def test_more_texts_than_may_wait_come_in_turn(tmp_path: Path) -> None:
    with open_pooled(tmp_path) as llm:
        vectors = llm.embed([[5, 6 + number % 50] for number in range(1200)])
        assert vectors.shape == (1200, WIDTH)
        assert vectors[0].tobytes() == vectors[50].tobytes()


def test_a_request_for_a_vector_can_be_cancelled(tmp_path: Path) -> None:
    with open_pooled(tmp_path) as llm:
        handles = [llm.submit([5] * 1000, EmbeddingParams()) for _ in range(20)]
        for handle in handles:
            handle.cancel()
        for handle in handles:
            result = handle.result(10)
            assert (result.embedding == b"") is (result.finish_reason is FinishReason.CANCELLED)
        assert llm.snapshot().blocks_held == 0


def test_nothing_is_kept_of_texts_that_have_their_vectors_or_were_cancelled(tmp_path: Path) -> None:
    with open_pooled(tmp_path) as llm:
        llm.embed(["why?", "how?"])
        handle = llm.submit("what?", EmbeddingParams())
        handle.cancel()
        handle.result(60)
        pooler = llm._loaded.engine._pooler
        assert pooler is not None
        assert llm._worker.ask(lambda engine: not pooler._pooled)
