"""The closed account of a request: what it adds up to, and what the way to the client adds."""

import pytest
from hypothesis import given, strategies as st

from twostroke.core.ledger import Ledger, Part, Stall, StallKind

LEDGER = Ledger(
    parts={Part.QUEUE: 0.5, Part.DECODE: 2.0, Part.OVERHEAD: 0.25},
    stalls=(Stall(StallKind.SCHEDULER, 0.125, None), Stall(StallKind.PREFILL_OF_OTHER, 1.0, "b")),
)
seconds = st.floats(0, 1e4)


def test_the_total_is_parts_and_stalls() -> None:
    assert LEDGER.total_s == 0.5 + 2.0 + 0.25 + 0.125 + 1.0
    assert Ledger(parts={}, stalls=()).total_s == 0


def test_delivery_is_waiting_for_the_client_and_the_rest() -> None:
    sent = LEDGER.with_delivery(waited_s=3.0, total_s=3.5)
    assert sent.parts == {Part.QUEUE: 0.5, Part.DECODE: 2.0, Part.BACKPRESSURE: 3.0, Part.OVERHEAD: 0.75}
    assert sent.stalls == LEDGER.stalls
    assert LEDGER.parts[Part.OVERHEAD] == 0.25, "the former account stays as it was"


def test_parts_without_time_are_absent_and_the_others_in_the_order_a_request_meets_them() -> None:
    sent = Ledger(parts={Part.OVERHEAD: 0.5, Part.PARSE: 0.25}, stalls=()).with_delivery(waited_s=0.0, total_s=0.0)
    assert list(sent.parts) == [Part.PARSE, Part.OVERHEAD]
    sent = Ledger(parts={Part.OVERHEAD: -0.5}, stalls=()).with_delivery(waited_s=1.0, total_s=1.5)
    assert sent.parts == {Part.BACKPRESSURE: 1.0}, "an overhead that came to nothing"


@given(parts=st.dictionaries(st.sampled_from(Part), seconds), total_s=seconds, share=st.floats(0, 1))
def test_every_second_of_the_delivery_has_a_name(parts: dict[Part, float], total_s: float, share: float) -> None:
    before = Ledger(parts=parts, stalls=LEDGER.stalls)
    sent = before.with_delivery(waited_s=share * total_s, total_s=total_s)
    assert sent.total_s == pytest.approx(before.total_s + total_s, abs=1e-6)
    assert [part for part in Part if part in sent.parts] == list(sent.parts)


def test_parts_have_the_names_that_metrics_and_records_tell() -> None:
    assert [part.value for part in Part][:3] == ["parse", "load", "template"]
    assert all(part.value == part.name.lower() for part in Part)
    assert all(kind.value == kind.name.lower() for kind in StallKind)
