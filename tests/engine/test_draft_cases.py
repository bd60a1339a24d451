"""Drafts that broke other engines, on models whose every token is known: what is kept is counted by hand."""

from collections.abc import Sequence as Seq

import numpy as np
import numpy.typing as npt
import pytest

from tests.builders import VOCAB, Bench, Listener, ScriptedReader
from tests.builders_drafts import Eager, EagerLookup, make_drafter
from twostroke.core.strategy import Speculator
from twostroke.params import SamplingParams

PASSAGE = list(range(10, 30))
FRESH = list(range(100, 200))  # tokens that come once
WRONG = 250
TARGET, DRAFT = (0.3, 0.5, 0.2), (0.8, 0.1, 0.1)  # of the tokens 0, 1 and 2


def told(prompt: Seq[int], says: Seq[int], speculator: Speculator | None) -> Listener:
    """The answer of a model that says just that after the prompt."""

    class Saying(ScriptedReader):
        def law(self, context: Seq[int]) -> npt.NDArray[np.float32]:
            logits = np.zeros(VOCAB, np.float32)
            logits[says[len(context) - len(prompt)] if len(context) - len(prompt) < len(says) else 0] = 9
            return logits

    bench = Bench(num_blocks=128, speculator=speculator)
    bench.reader.__class__ = Saying
    _, listener = bench.add(list(prompt), params=SamplingParams(max_tokens=len(says)))
    bench.run()
    return listener


@pytest.mark.parametrize("length", range(1, 9))
@pytest.mark.parametrize("wrong_at", [0, 1, "last", None])
def test_what_is_kept_of_a_guess_from_the_text_is_what_was_right_before_its_first_wrong_token(
    length: int, wrong_at: int | str | None
) -> None:
    """The passage begins again in the prompt; its guess goes wrong at the first, second or last token, or never."""
    num_right = length if wrong_at is None else length - 1 if wrong_at == "last" else min(int(wrong_at), length)
    says = [PASSAGE[2], *PASSAGE[3 : 3 + num_right]]
    says += [WRONG, *FRESH[:9]]
    eager = EagerLookup(length=length)
    prompt = [*PASSAGE, 5, *PASSAGE[:2]]
    assert told(prompt, says, eager).token_ids == told(prompt, says, None).token_ids == says
    assert (eager.num_drafted, eager.num_accepted) == (length, num_right)


@pytest.mark.parametrize("length", range(1, 9))
def test_one_token_over_and_over(length: int) -> None:
    ones, eager = [1] * 24, EagerLookup(length=length)
    assert told([1, 1, 1], ones, eager).token_ids == ones
    assert eager.num_accepted == eager.num_drafted > 0
    other, eager = FRESH[:9], EagerLookup(length=length)
    assert told([1, 1, 1], other, eager).token_ids == other
    assert eager.num_drafted == 0


def test_three_hundred_tokens_without_a_guess_and_then_a_passage_again() -> None:
    """No empty draft leaves anything behind; what is kept grows with the text alone."""
    says = [*FRESH, *range(30, 99), *range(200, 250), *PASSAGE[:3], *PASSAGE[3:], *FRESH[:3]]
    eager = EagerLookup(length=6)
    assert told(PASSAGE, says, eager).token_ids == told(PASSAGE, says, None).token_ids == says
    assert eager.num_accepted > 10
    assert eager.num_drafted <= eager.num_accepted + 12
    assert not eager.lookup._runs


class Fixed(ScriptedReader):
    """The same three odds at every position."""

    odds = TARGET

    def law(self, context: Seq[int]) -> npt.NDArray[np.float32]:
        logits = np.full(VOCAB, -np.inf, np.float32)
        logits[:3] = np.log(self.odds)
        return logits


class FixedDraft(Fixed):
    odds = DRAFT


def drawn(params: SamplingParams, *, num_requests: int, speculator: Eager | None) -> list[list[int]]:
    bench = Bench(num_blocks=512, speculator=speculator)
    bench.reader.__class__ = Fixed
    listeners = [bench.add([7], params=params, seed=seed)[1] for seed in range(num_requests)]
    bench.run()
    return [each.token_ids for each in listeners]


def test_greedy_keeps_only_the_likeliest_token_whatever_a_draft_model_likes() -> None:
    eager = Eager(make_drafter(FixedDraft), length=4)
    assert drawn(SamplingParams(max_tokens=20), num_requests=2, speculator=eager) == [[1] * 20] * 2
    assert eager.num_accepted == 0
