"""Every number Prometheus is told, from events made by hand and from requests over HTTP."""

import asyncio
import json
import logging
import math
import re
import sys
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.builders_cost import make_cost
from tests.serve.serve_builders import ScriptedModel, client_of, make_chat, make_completion, take_end
from twostroke.core.account import Account, StepRecord
from twostroke.core.event import DraftStop, FinishEvent, KVUsage, NoDraft, Speculation, Timing, TokenEvent, Usage
from twostroke.core.ledger import Part
from twostroke.core.peaks import Peaks
from twostroke.core.phase import Phase
from twostroke.core.sequence import FinishReason
from twostroke.core.snapshot import Snapshot
from twostroke.core.step import RowPlan
from twostroke.errors import CapacityError, QueueFullError
from twostroke.serve.answers import Answers, CancelCause
from twostroke.serve.json_log import JsonLines
from twostroke.serve.metrics import MAX_JUDGED, MAX_NEW, MODEL_LABEL, SECONDS, ModelMetrics, ServerMetrics, gauges

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
IDLE = Snapshot(
    num_running=0,
    num_waiting=0,
    num_preemptions=0,
    blocks_free=8,
    blocks_cached=0,
    blocks_held=0,
    blocks_total=8,
    prefix_queries=0,
    prefix_hits=0,
)


def numbers(metrics: ModelMetrics, now: Snapshot = IDLE) -> dict[str, float]:
    """Every sample by its name without the prefix, labels as Prometheus writes them."""
    return numbers_of(ServerMetrics().text([("m", metrics, now, {})]).decode())


def numbers_of(text: str) -> dict[str, float]:
    """Of the only model there is: its name is left out."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            shown = {name: value for name, value in sorted(sample.labels.items()) if name != MODEL_LABEL}
            labels = ",".join(f"{name}={value}" for name, value in shown.items())
            assert sample.name.startswith("twostroke_")
            found[sample.name.removeprefix("twostroke_") + (f"{{{labels}}}" if labels else "")] = sample.value
    return found


class Session:
    """Requests whose events happen when a test says so."""

    def __init__(self) -> None:
        self.metrics = ModelMetrics()

    def answers(self, *, arrival_s: float = 0.0, num_answers: int = 1) -> Answers:
        async def make() -> Answers:
            return Answers(max_pending=1000, observers=[self.metrics.observe])

        answers = asyncio.run(make())
        answers.arrival_s = arrival_s
        answers.num_unfinished = num_answers
        return answers

    def say(self, answers: Answers, *times_s: float, index: int = 0) -> None:
        for time_s in times_s:
            answers.take(index, TokenEvent("r", 7, "x", time_s))

    def end(self, answers: Answers, reason: FinishReason, *, index: int = 0, **facts: Any) -> None:
        take_end(answers, make_end(reason, **facts), index=index)

    def numbers(self) -> dict[str, float]:
        return numbers(self.metrics)


def make_end(
    reason: FinishReason,
    *,
    finish_s: float = 1.0,
    tpot_s: float | None = None,
    usage: tuple[int, int, int] = (5, 0, 0),
    kv_tokens: int = 0,
    before: dict[Part, float] | None = None,
    speculation: Speculation | None = None,
) -> FinishEvent:
    return FinishEvent(
        request_id="r",
        reason=reason,
        text="",
        usage=Usage(*usage),
        timing=Timing(ttft_s=None, tpot_s=tpot_s, e2e_s=finish_s, first_text_s=None),
        kv=KVUsage(tokens=kv_tokens, bytes=0, blocks=0, waste_ratio=0.0),
        account=Account(request_id="r", arrival_s=0.0, before=before or {}, finish_s=finish_s),
        seed=1,
        speculation=speculation,
    )


# Definitions


def test_gaps_and_time_per_token_are_two_numbers_with_two_weights() -> None:
    """Tokens at 1.0, 1.1, 1.1 and 1.4: gaps of 0.05 twice and 0.3, (1.4 - 1.0) / 3 per token."""
    session = Session()
    answers = session.answers()
    session.say(answers, 1.0, 1.1, 1.1, 1.4)
    session.end(answers, FinishReason.STOP, tpot_s=0.4 / 3, usage=(5, 0, 4))
    found = session.numbers()
    assert found["time_to_first_token_seconds_sum"] == 1.0
    assert found["inter_token_latency_seconds_count"] == 3
    assert found["inter_token_latency_seconds_sum"] == pytest.approx(0.4)
    assert found["request_time_per_output_token_seconds_sum"] == pytest.approx(0.4 / 3)
    assert found["request_time_per_output_token_seconds_count"] == 1


def test_answers_of_no_or_one_token_have_no_time_per_token() -> None:
    session = Session()
    for times_s in ((), (1.0,)):
        answers = session.answers()
        session.say(answers, *times_s)
        session.end(answers, FinishReason.LENGTH)
    found = session.numbers()
    assert found["request_time_per_output_token_seconds_count"] == 0
    assert found["inter_token_latency_seconds_count"] == 0
    assert found["time_to_first_token_seconds_count"] == 1
    assert found["e2e_request_latency_seconds_count"] == 2
    assert not any(math.isnan(value) for value in found.values())


def test_tokens_of_one_step_share_the_gap_before_it() -> None:
    """Four tokens come together after a second: not one gap of a second and three of nothing."""
    session = Session()
    answers = session.answers(arrival_s=0.0)
    session.say(answers, 1.0, 2.0, 2.0, 2.0, 2.0, 2.25)
    session.end(answers, FinishReason.STOP)
    found = session.numbers()
    assert found["inter_token_latency_seconds_count"] == 5
    assert found["inter_token_latency_seconds_sum"] == pytest.approx(1.25)
    assert found["inter_token_latency_seconds_bucket{le=0.2}"] == 0
    assert found["inter_token_latency_seconds_bucket{le=0.5}"] == 5


def test_guessed_tokens_are_counted_by_what_became_of_them() -> None:
    session = Session()
    stop = DraftStop(NoDraft.CONTEXT, acceptance=0.1, verify_share=0.6, draft_share=0.0, num_sequences=1)
    for speculation in (Speculation(40, 34, 1.75), Speculation(3, 0, None, stop), None):
        session.end(session.answers(), FinishReason.STOP, speculation=speculation)
    found = session.numbers()
    assert found["spec_tokens_total{kind=accepted}"] == 34
    assert found["spec_tokens_total{kind=refused}"] == 9
    assert found["spec_stops_total{reason=context}"] == 1


def test_tokens_are_counted_as_ids_not_by_their_text() -> None:
    session = Session()
    answers = session.answers()
    for number in range(100):
        answers.take(0, TokenEvent("r", 7, "", 1.0 + number))
    assert session.numbers()["generation_tokens_total"] == 100


def test_the_first_token_counts_from_arrival_with_the_wait_in_the_queue() -> None:
    session = Session()
    for number in range(10):  # one second each, one after the other, all there from the start
        answers = session.answers(arrival_s=100.0)
        session.say(answers, 100.0 + number)
        session.end(answers, FinishReason.STOP, before={}, finish_s=float(number + 1))
    found = session.numbers()
    assert found["time_to_first_token_seconds_sum"] == sum(range(10))
    assert found["time_to_first_token_seconds_bucket{le=5.0}"] == 6
    assert found["request_queue_time_seconds_sum"] == sum(range(1, 11))  # accounts without steps are all queue


def test_every_answer_ends_in_one_count_whatever_became_of_it() -> None:
    session = Session()
    ends = [
        *[(FinishReason.STOP, 3)] * 40,
        *[(FinishReason.LENGTH, 2)] * 20,
        *[(FinishReason.CANCELLED, 0)] * 20,
        *[(FinishReason.CANCELLED, 1)] * 10,
        *[(FinishReason.ERROR, 1)] * 5,
    ]
    for reason, num_tokens in ends:
        answers = session.answers(num_answers=2)
        for index in range(2):
            session.say(answers, *[1.0] * num_tokens, index=index)
            session.end(answers, reason, index=index, usage=(5, 0, num_tokens))
    found = session.numbers()
    reasons = {reason: found[f"request_success_total{{finished_reason={reason}}}"] for reason in FinishReason}
    assert reasons == {"stop": 80, "length": 40, "cancelled": 60, "error": 10}
    assert sum(reasons.values()) == found["e2e_request_latency_seconds_count"] == 2 * len(ends)
    assert found["time_to_first_token_seconds_count"] == 2 * sum(num_tokens > 0 for _, num_tokens in ends)
    assert found["generation_tokens_total"] == 2 * sum(num_tokens for _, num_tokens in ends)
    assert found["prompt_tokens_total"] == 2 * 5 * len(ends)


def test_what_was_computed_for_nobody_is_counted_by_phase() -> None:
    session = Session()
    session.end(session.answers(), FinishReason.CANCELLED, usage=(100, 16, 0), kv_tokens=48)  # inside its prefill
    session.end(session.answers(), FinishReason.ERROR, usage=(100, 0, 7), kv_tokens=106)
    session.end(session.answers(), FinishReason.CANCELLED, usage=(100, 0, 0), kv_tokens=0)  # in the queue
    session.end(session.answers(), FinishReason.STOP, usage=(100, 0, 9), kv_tokens=108)
    found = session.numbers()
    assert found["wasted_tokens_total{phase=prefill}"] == 32 + 100
    assert found["wasted_tokens_total{phase=decode}"] == 7


def test_a_cancel_is_measured_until_its_blocks_are_free() -> None:
    session = Session()
    answers = session.answers()
    answers.cause, answers.cancelled_s = CancelCause.CLIENT_LEFT, 0.9
    session.end(answers, FinishReason.CANCELLED, finish_s=1.0)
    session.end(session.answers(), FinishReason.CANCELLED)  # the model itself was closed
    found = session.numbers()
    assert found["cancel_latency_seconds_count"] == 1
    assert found["cancel_latency_seconds_sum"] == pytest.approx(0.1)


def test_time_is_told_by_name() -> None:
    session = Session()
    session.end(session.answers(), FinishReason.STOP, before={Part.PARSE: 0.25, Part.TOKENIZE: 0.5}, finish_s=1.0)
    found = session.numbers()
    parts = {name: value for name, value in found.items() if name.startswith("ledger_seconds_total")}
    assert parts == {
        "ledger_seconds_total{part=parse}": 0.25,
        "ledger_seconds_total{part=tokenize}": 0.5,
        "ledger_seconds_total{part=queue}": 0.25,
    }


@pytest.mark.parametrize(
    ("phases", "kind"),
    [
        ([Phase.PREFILL], "prefill"),
        ([Phase.DECODE, Phase.DECODE], "decode"),
        ([Phase.DECODE, Phase.PREFILL], "mixed"),
    ],
)
def test_steps_are_told_by_kind_with_their_tokens(phases: list[Phase], kind: str) -> None:
    metrics = ModelMetrics()
    metrics.observe_step(make_step(1.0, *phases))
    found = numbers(metrics)
    assert found[f"step_seconds_sum{{kind={kind}}}"] == pytest.approx(0.01)
    assert found["iteration_tokens_total_sum"] == len(phases)


def test_steps_are_counted_in_batches_off_the_engines_thread_and_lost_to_no_scrape() -> None:
    session = Session()
    for _ in range(MAX_NEW + 9):
        session.metrics.observe_step(make_step(1.0, Phase.DECODE))
    assert not session.metrics.steps_since(0.0), "the engine's thread counted them"
    session.say(session.answers(), 1.0)
    assert session.metrics.steps_since(0.0), "more wait than may"
    session.metrics.observe_step(make_step(1.0, Phase.DECODE))
    assert session.numbers()["iteration_tokens_total_count"] == MAX_NEW + 10


# Gauges


def test_gauges_are_the_engine_at_this_moment() -> None:
    metrics = ModelMetrics()
    busy = Snapshot(
        num_running=3,
        num_waiting=2,
        num_preemptions=1,
        blocks_free=2,
        blocks_cached=1,
        blocks_held=5,
        blocks_total=8,
        prefix_queries=90,
        prefix_hits=30,
        waste_ratio=0.25,
    )
    found = numbers(metrics, busy)
    assert (found["num_requests_running"], found["num_requests_waiting"]) == (3, 2)
    assert found["kv_cache_usage_perc"] == 0.625
    assert found["kv_waste_ratio"] == 0.25
    assert [found[f"kv_blocks{{state={state}}}"] for state in ("free", "cached", "held")] == [2, 1, 5]
    assert (found["prefix_cache_queries_total"], found["prefix_cache_hits_total"]) == (90, 30)
    assert found["num_preemptions_total"] == 1
    assert "spec_refused_ratio" not in found
    assert numbers(metrics, replace(busy, refused_draft_share=0.01))["spec_refused_ratio"] == 0.01
    assert numbers(metrics)["num_requests_running"] == 0


def test_an_engine_without_blocks_divides_by_nothing() -> None:
    empty = replace(IDLE, blocks_free=0, blocks_total=0)
    assert {family.name: family.samples for family in gauges(empty)}["twostroke_kv_cache_usage_perc"][0].value == 0


def test_latencies_have_buckets_from_half_a_millisecond_to_ten_minutes() -> None:
    assert SECONDS[0] == 0.0005
    assert SECONDS[-1] == 600
    assert list(SECONDS) == sorted(SECONDS)


# Over HTTP


def test_the_route_counts_what_was_answered() -> None:
    with client_of(ScriptedModel()) as client:
        client.post(CHAT, json=make_chat())
        client.post(COMPLETIONS, json=make_completion(prompt=["p", "q"], max_tokens=2, stream=True))
        response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = numbers_of(response.text)
    assert found["generation_tokens_total"] == 3 + 2 + 2
    assert found["request_success_total{finished_reason=stop}"] == 1
    assert found["request_success_total{finished_reason=length}"] == 2
    assert found["num_requests_running"] == 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [(QueueFullError("full"), "queue_full"), (CapacityError("too long"), "context_length_exceeded")],
)
def test_what_is_not_taken_is_counted_by_reason(error: Exception, reason: str) -> None:
    with client_of(ScriptedModel(refuse=error)) as client:
        client.post(CHAT, json=make_chat())
        client.post(CHAT, json=make_chat(seed="x"))
        found = numbers_of(client.get("/metrics").text)
    assert found[f"admission_rejections_total{{reason={reason}}}"] == 1
    assert sum(value for name, value in found.items() if name.startswith("admission_rejections_total")) == 1


def test_the_server_listens_to_the_steps_of_its_model() -> None:
    model = ScriptedModel()
    with client_of(model):
        assert model.step_observers


# Utilisation

PEAKS = Peaks(
    threads=1, isa="portable", int8_ops_per_s=1.0, bf16_ops_per_s=1.0, fp32_ops_per_s=1.0, read_bytes_per_s=1.0
)


def make_step(start_s: float, *phases: Phase) -> StepRecord:
    rows = tuple(RowPlan(number, 8, 1, phase, needs_logits=True) for number, phase in enumerate(phases))
    ids = tuple(f"r{number}" for number in range(len(rows)))
    end_s = start_s + 0.01
    return StepRecord(
        start_s=start_s, logits_s=end_s, sampled_s=end_s, handed_s=end_s, rows=rows, request_ids=ids, cost=make_cost()
    )


@pytest.mark.parametrize("peaks", [PEAKS, None])
def test_what_recent_steps_used_of_the_machine_is_told_where_its_peaks_are_known(peaks: Peaks | None) -> None:
    model = ScriptedModel()
    with client_of(model) as client:
        (slot,) = client.app.state.routes._models.slots  # type: ignore[attr-defined]
        slot.peaks = peaks
        now_s = model.now()
        for ago_s, phases in ((600.0, [Phase.PREFILL]), (1.0, [Phase.DECODE]), (0.5, [Phase.DECODE] * 2)):
            slot.metrics.observe_step(make_step(now_s - ago_s, *phases))
        slot.metrics.observe_step(make_step(now_s, Phase.DECODE, Phase.PREFILL))
        found = numbers_of(client.get("/metrics").text)
    told = {name: value for name, value in found.items() if name.startswith("phase_utilisation")}
    if peaks is None:
        assert not told
        return
    assert {name.partition("{")[2]: value for name, value in told.items()} == {
        "phase=decode,resource=compute}": 0.02,
        "phase=decode,resource=bandwidth}": 0.2,
        "phase=mixed,resource=compute}": 0.01,
        "phase=mixed,resource=bandwidth}": 0.1,
    }


def test_only_the_latest_steps_are_priced() -> None:
    metrics = ModelMetrics()
    for number in range(3 * MAX_JUDGED):
        metrics.observe_step(make_step(float(number), Phase.DECODE))
    metrics.settle()
    (steps,) = metrics.steps_since(0.0).values()
    assert [step.start_s for step in steps] == [float(2 * MAX_JUDGED + number) for number in range(MAX_JUDGED)]


# The log


def test_a_line_of_the_log_is_json_with_the_facts_of_its_request(caplog: pytest.LogCaptureFixture) -> None:
    with client_of() as client, caplog.at_level(logging.INFO, logger="twostroke.requests"):
        request_id = client.post(CHAT, json=make_chat(messages=[{"role": "user", "content": "secret"}])).json()["id"]
    (record,) = [record for record in caplog.records if record.name == "twostroke.requests"]
    line = JsonLines().format(record)
    told = json.loads(line)
    assert "\n" not in line
    assert "secret" not in line
    assert "Hello" not in line
    assert (told["id"], told["message"], told["level"]) == (request_id, "request ended", "info")
    assert told["answers"][0]["finish_reason"] == "stop"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", told["time"])


def test_a_traceback_is_one_field_of_its_line() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        record = logging.LogRecord("twostroke", logging.ERROR, "", 0, "failed: %s", ("x",), sys.exc_info())
    line = JsonLines().format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert told["message"] == "failed: x"
    assert "ValueError: broken" in told["traceback"]


def test_requests_are_not_logged_unless_asked(caplog: pytest.LogCaptureFixture) -> None:
    with client_of() as client:
        client.post(CHAT, json=make_chat())
    assert not [record for record in caplog.records if record.name == "twostroke.requests"]
