"""What drafts brought an answer and why they stopped, in words and as JSON. Reads facts; computes nothing."""

from typing import Any

from twostroke.core.event import DraftStop, NoDraft, Speculation
from twostroke.view import quantity

REASONS = {
    NoDraft.NO_GUESS: "the answer's newest tokens stood nowhere in the text before",
    NoDraft.READING: "the draft model has yet to read the text",
    NoDraft.CONTEXT: "the text is longer than the draft model's context",
    NoDraft.MEMORY: "the draft model's KV store is full",
    NoDraft.FAILED: "the draft model failed",
}


def drafts_text(speculation: Speculation) -> str:
    """One sentence of any length."""
    parts = [f"{speculation.accepted} of {speculation.drafted} tokens kept" if speculation.drafted else "none"]
    if speculation.gain is not None:
        parts.append(f"decode {speculation.gain:.2f}x as fast as without")
    if speculation.kv_bytes:
        parts.append(f"draft model's KV {quantity.size(speculation.kv_bytes)}")
    if speculation.stop is not None:
        parts.append(f"stopped: {why_stopped(speculation.stop)}")
    return "; ".join(parts)


def why_stopped(stop: DraftStop) -> str:
    """The reason with the numbers it stood on."""
    if stop.reason in REASONS:
        return REASONS[stop.reason]
    whole = "a step" if stop.num_sequences == 1 else f"a token's share of a step of {stop.num_sequences} sequences"
    drafting = f", drafting it {stop.draft_share:.2f}" if stop.draft_share else ""
    price = f"a verify of 1 token costs {stop.verify_share:.2f} of {whole}{drafting}"
    if stop.reason is NoDraft.COST:
        return f"acceptance {quantity.share(stop.acceptance)} and {price}"
    return f"refused drafts have had their share of all work; acceptance {quantity.share(stop.acceptance)}, {price}"


def drafts_json(speculation: Speculation) -> dict[str, Any]:
    """The same as an object; `stopped` is null where the last steps drafted."""
    stop = speculation.stop
    return {
        "drafted": speculation.drafted,
        "accepted": speculation.accepted,
        "gain": speculation.gain,
        "draft_kv_bytes": speculation.kv_bytes,
        "stopped": None
        if stop is None
        else {
            "reason": stop.reason.value,
            "text": why_stopped(stop),
            "acceptance": stop.acceptance,
            "verify_share": stop.verify_share,
            "draft_share": stop.draft_share,
            "num_sequences": stop.num_sequences,
        },
    }
