"""Tokens drawn from what a head hands on are those drawn from all logits, and no schedule changes what it hands on."""

from pathlib import Path

import pytest

from tests.builders_drafts import Forced
from tests.builders_gguf import write_gemma3, write_llama
from tests.parity.test_schedules import GREEDY, PROMPTS, QUIET, Lab, random_schedule
from twostroke import _native
from twostroke.model.open import open_model
from twostroke.params import SamplingParams

PLAIN = [  # what came before changes none of these
    GREEDY,
    SamplingParams(max_tokens=16, ignore_eos=True, temperature=0.9, top_k=3, top_p=0.95),
]
WISHES = [
    *PLAIN,
    SamplingParams(max_tokens=16, temperature=1.1, top_k=2, repetition_penalty=1.3, logit_bias=((7, 3.0),)),
    SamplingParams(max_tokens=16, ignore_eos=True, presence_penalty=1.5),
    SamplingParams(max_tokens=16, ignore_eos=True, temperature=1.0, top_p=0.9),
    SamplingParams(max_tokens=16, ignore_eos=True, logprobs=2),
]


@pytest.mark.parametrize("isa", _native.usable_isas())
@pytest.mark.parametrize("write", [write_llama, write_gemma3])
def test_answers_are_those_of_all_logits_under_every_schedule(isa: str, write: type, tmp_path: Path) -> None:
    source = open_model(write(tmp_path / "model.gguf", tensor_type="Q8_0"))
    asked = [(prompt, params) for prompt in PROMPTS[1:4] for params in WISHES]
    whole = Lab(source, precision="bf16", isa=isa)
    narrow = Lab(source, precision="bf16", isa=isa, asks_candidates=True)
    whole.run(QUIET, asked)
    hashes = narrow.run(QUIET, asked)
    assert narrow.answers == whole.answers
    for seed in range(4):
        assert narrow.run(random_schedule(seed), asked) == hashes


@pytest.mark.parametrize("wrong", [0.0, 0.4, 1.0])
def test_drafts_are_verified_on_candidates(wrong: float, tmp_path: Path) -> None:
    source = open_model(write_llama(tmp_path / "model.gguf", tensor_type="Q4_1"))
    whole, narrow = Lab(source, precision="bf16"), Lab(source, precision="bf16", asks_candidates=True)
    for wishes in (PLAIN, WISHES):
        asked = [(prompt, params) for prompt in PROMPTS for params in wishes]
        whole.run(QUIET, asked)
        hashes, answers = narrow.run(QUIET, asked), whole.answers
        for seed in range(3):
            forced = Forced(answers, length=1 + 2 * seed, wrong=wrong, seed=seed)
            again = narrow.run(random_schedule(seed), asked, speculator=forced)
            assert narrow.answers == answers
            assert wishes is not PLAIN or again == hashes
            assert (forced.num_accepted > 0) == (wrong < 1.0)
