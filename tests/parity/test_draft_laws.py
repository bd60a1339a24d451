"""Drawn tokens follow the model's law whatever a draft model prefers."""

from collections.abc import Sequence as Seq

import numpy as np
import pytest

from tests.builders_drafts import Eager, make_drafter
from tests.engine.test_draft_cases import DRAFT, TARGET, FixedDraft, drawn
from tests.sample.sampling_builders import FALSE_ALARM_Z, chi_square_z
from twostroke.params import SamplingParams


@pytest.mark.parametrize(("top_k", "law"), [(0, TARGET), (2, (0.375, 0.625, 0.0))])
def test_drawn_tokens_have_the_models_own_law_not_the_drafts(top_k: int, law: Seq[float]) -> None:
    params = SamplingParams(max_tokens=25, temperature=1.0, top_k=top_k)
    eager = Eager(make_drafter(FixedDraft, num_blocks=1024), length=3)
    answers = drawn(params, num_requests=200, speculator=eager)
    assert answers == drawn(params, num_requests=200, speculator=None)
    assert 0 < eager.num_accepted < eager.num_drafted
    draws = np.array([token for answer in answers for token in answer])
    assert chi_square_z(draws, law) < FALSE_ALARM_Z
    assert chi_square_z(draws, DRAFT) > 2 * FALSE_ALARM_Z
