"""Drafts in replies: OpenAI's counts of predicted tokens in `usage`, and what they gained beside a ledger."""

from collections.abc import Iterable
from typing import Any

from twostroke.core.event import FinishEvent
from twostroke.view.drafts import drafts_json


def prediction_details(finishes: Iterable[FinishEvent | None]) -> dict[str, Any]:
    """What `completion_tokens_details` says of all answers together; nothing where no answer could be drafted for.

    As in OpenAI's schema but for one thing: refused tokens are no part of `completion_tokens`, as nobody pays for them.
    """
    tried = [each.speculation for each in finishes if each is not None and each.speculation is not None]
    if not tried:
        return {}
    accepted = sum(each.accepted for each in tried)
    rejected = sum(each.drafted for each in tried) - accepted
    return {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": rejected}


def speculation_of(finish: FinishEvent) -> dict[str, Any]:
    """What drafts brought one answer and why they stopped, in full; nothing where it could not be drafted for."""
    return {} if finish.speculation is None else {"speculation": drafts_json(finish.speculation)}
