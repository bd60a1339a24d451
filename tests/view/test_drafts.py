"""What drafts brought, and why they stopped, in words."""

import pytest

from tests.view.builders import make_report, make_result
from twostroke.core.event import DraftStop, NoDraft, Speculation
from twostroke.view.drafts import drafts_json, drafts_text, why_stopped
from twostroke.view.phase_report import WIDTH, phase_report_lines

SHARE_SPENT = "refused drafts have had their share of all work"


def stop(reason: NoDraft, *, draft_share: float = 0.0, num_sequences: int = 1) -> DraftStop:
    return DraftStop(reason, acceptance=0.12, verify_share=0.6, draft_share=draft_share, num_sequences=num_sequences)


@pytest.mark.parametrize(
    ("why", "told"),
    [
        (stop(NoDraft.COST), "acceptance 12 % and a verify of 1 token costs 0.60 of a step"),
        (
            stop(NoDraft.COST, draft_share=0.25),
            "acceptance 12 % and a verify of 1 token costs 0.60 of a step, drafting it 0.25",
        ),
        (
            stop(NoDraft.COST, num_sequences=8),
            "acceptance 12 % and a verify of 1 token costs 0.60 of a token's share of a step of 8 sequences",
        ),
        (
            stop(NoDraft.SHARE),
            f"{SHARE_SPENT}; acceptance 12 %, a verify of 1 token costs 0.60 of a step",
        ),
        (stop(NoDraft.NO_GUESS), "the answer's newest tokens stood nowhere in the text before"),
        (stop(NoDraft.CONTEXT), "the text is longer than the draft model's context"),
    ],
)
def test_a_stop_is_told_with_the_numbers_it_stood_on(why: DraftStop, told: str) -> None:
    assert why_stopped(why) == told


@pytest.mark.parametrize("reason", list(NoDraft))
def test_every_reason_has_words(reason: NoDraft) -> None:
    assert why_stopped(stop(reason))


def test_all_of_it_is_one_sentence_and_folded_in_the_report() -> None:
    speculation = Speculation(40, 34, 1.75, stop(NoDraft.COST), kv_bytes=2_000_000)
    told = drafts_text(speculation)
    assert told == (
        "34 of 40 tokens kept; decode 1.75x as fast as without; draft model's KV 2 MB; stopped: "
        "acceptance 12 % and a verify of 1 token costs 0.60 of a step"
    )
    lines = phase_report_lines(make_result(speculation=speculation), make_report())
    first = next(index for index, line in enumerate(lines) if line.startswith("drafts"))
    assert " ".join(line.strip() for line in lines[first : first + 3]).startswith(f"drafts   {told}")
    assert max(map(len, lines)) <= WIDTH


def test_json_has_the_words_and_the_numbers() -> None:
    shown = drafts_json(Speculation(40, 34, 1.75, stop(NoDraft.COST, draft_share=0.25), kv_bytes=96))
    assert shown == {
        "drafted": 40,
        "accepted": 34,
        "gain": 1.75,
        "draft_kv_bytes": 96,
        "stopped": {
            "reason": "cost",
            "text": "acceptance 12 % and a verify of 1 token costs 0.60 of a step, drafting it 0.25",
            "acceptance": 0.12,
            "verify_share": 0.6,
            "draft_share": 0.25,
            "num_sequences": 1,
        },
    }
    assert drafts_json(Speculation(1, 1, None))["stopped"] is None
