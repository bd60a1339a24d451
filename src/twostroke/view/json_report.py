"""One answer as one JSON object: the facts of the phase report in seconds and bytes, null where there is no value."""

from typing import Any

from twostroke.core.event import Beam
from twostroke.core.ledger import Ledger
from twostroke.core.report import PhaseReport, PhaseUse, Result
from twostroke.core.step import ScoredToken, TokenLogprob
from twostroke.view.drafts import drafts_json


def json_report(
    result: Result, report: PhaseReport, *, with_logprobs: bool = False, with_seed: bool = False
) -> dict[str, Any]:
    """The object of `twostroke run --json`; `logprobs`, `prompt_logprobs`, `speculation` and `beams` only
    when they were asked for, `seed` of a drawn answer, `answer` where the text holds reasoning or calls."""
    usage, kv = result.usage, result.kv
    decode = _phase(report.decode) | {"tpot_s": report.decode.tpot_s}
    shown: dict[str, Any] = {
        "text": result.text,
        "token_ids": list(result.token_ids),
        "finish_reason": result.finish_reason.value,
        "stop_reason": result.stop_reason,
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
        },
        "phases": {"prefill": _phase(report.prefill), "decode": decode},
        "kv": {"tokens": kv.tokens, "bytes": kv.bytes, "blocks": kv.blocks, "waste_ratio": kv.waste_ratio},
        "ttft_s": result.timing.ttft_s,
        "e2e_s": result.timing.e2e_s,
        "ledger": json_ledger(result.ledger),
    }
    if with_seed:
        shown["seed"] = result.seed
    if with_logprobs:
        shown["logprobs"] = _logprobs(result)
    if result.prompt_logprobs:
        shown["prompt_logprobs"] = [_scored(score) for score in result.prompt_logprobs]
    if (spoken := result.speculation) is not None:
        shown["speculation"] = drafts_json(spoken)
    if (answer := result.answer) is not None and (answer.reasoning or answer.tool_calls):
        calls = [{"name": call.name, "arguments": call.arguments} for call in answer.tool_calls]
        shown["answer"] = {"content": answer.content, "reasoning": answer.reasoning, "tool_calls": calls}
    if result.beams:
        shown["beams"] = [_beam(beam) for beam in result.beams]
    return shown


def _beam(beam: Beam) -> dict[str, Any]:
    return {
        "text": beam.text,
        "token_ids": list(beam.token_ids),
        "score": beam.score,
        "finish_reason": beam.finish_reason.value,
        "stop_reason": beam.stop_reason,
    }


def _scored(score: ScoredToken) -> dict[str, Any]:
    """A token of the prompt; the first, which follows nothing, has neither logarithm nor rank."""
    top = [{"token_id": other.token_id, "logprob": other.logprob} for other in score.top_logprobs]
    return {"token_id": score.token_id, "logprob": score.logprob, "rank": score.rank, "top": top}


def _phase(use: PhaseUse) -> dict[str, Any]:
    return {
        "tokens": use.tokens,
        "time_s": use.time_s,
        "tokens_per_s": use.tokens_per_s,
        "bound_by": None if use.bound_by is None else use.bound_by.value,
        "utilisation": use.utilisation,
    }


def json_ledger(ledger: Ledger) -> dict[str, Any]:
    """Seconds per part, and the stalls."""
    stalls = [
        {"kind": stall.kind.value, "time_s": stall.time_s, "request_id": stall.request_id} for stall in ledger.stalls
    ]
    return {part.value: time_s for part, time_s in ledger.parts.items()} | {"stall": stalls}


def _logprobs(result: Result) -> list[dict[str, Any]]:
    """Per answer token: its own raw log-softmax and the best alternatives."""
    tops: tuple[tuple[TokenLogprob, ...], ...] = result.top_logprobs or ((),) * len(result.token_ids)
    return [
        {
            "token_id": token_id,
            "logprob": logprob,
            "top": [{"token_id": other.token_id, "logprob": other.logprob} for other in top],
        }
        for token_id, logprob, top in zip(result.token_ids, result.logprobs, tops, strict=True)
    ]
