"""Answers of several strategies one below the other, as text and as JSON. Reads outcomes, computes nothing."""

from typing import Any

from twostroke.core.ledger import Part
from twostroke.measure.strategies import Outcome
from twostroke.presets import Preset
from twostroke.view import quantity


def strategies_text(outcomes: list[tuple[Preset, Outcome]]) -> str:
    """Every number is measured; all answers ran in one batch, so waiting for each other is a stall."""
    return "\n\n".join(f"{_head(preset, outcome)}\n{outcome.result.text}" for preset, outcome in outcomes)


def _head(preset: Preset, outcome: Outcome) -> str:
    result, ledger = outcome.result, outcome.result.ledger
    tokens = quantity.count(len(result.token_ids), "token")
    lines = [f"== {preset.name}: {preset.settings}", f"   {tokens}, {result.finish_reason.value}"]
    if outcome.logprob is not None and outcome.entropy is not None:
        each = outcome.logprob / len(result.token_ids)
        lines[-1] += (
            f"; log-probability {outcome.logprob:.2f}, {each:.2f} per token; entropy {outcome.entropy:.2f} nats"
        )
    times = [(name, ledger.parts.get(Part(name), 0.0)) for name in ("prefill", "decode", "sample")]
    stall_s = sum(stall.time_s for stall in ledger.stalls)
    shown = [f"{name} {quantity.duration(time_s)}" for name, time_s in (*times, ("stall", stall_s))]
    return "\n".join([*lines, f"   {', '.join(shown)}"])


def strategies_json(outcomes: list[tuple[Preset, Outcome]]) -> list[dict[str, Any]]:
    """Seconds and nats; null where there is no value."""
    return [
        {
            "strategy": preset.name,
            "settings": preset.settings,
            "text": outcome.result.text,
            "token_ids": list(outcome.result.token_ids),
            "finish_reason": outcome.result.finish_reason.value,
            "logprob": outcome.logprob,
            "entropy": outcome.entropy,
            "ledger": {part.value: time_s for part, time_s in outcome.result.ledger.parts.items()},
            "stall_s": sum(stall.time_s for stall in outcome.result.ledger.stalls),
        }
        for preset, outcome in outcomes
    ]
