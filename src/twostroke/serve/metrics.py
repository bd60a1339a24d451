"""What Prometheus is told: counters and histograms filled as events come, gauges read off the engine when scraped.

Answers tell it their events and the engine its steps; names, words and types are vLLM's where it has the same thing.
An answer is a sequence: a request for n of them counts n times, here as in `num_requests_running`. Every model
has numbers of its own; a scrape tells them apart by `model_name`.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from twostroke.core.account import StepRecord
from twostroke.core.event import Event, FinishEvent, TokenEvent
from twostroke.core.ledger import Part
from twostroke.core.phase import Phase
from twostroke.core.sequence import FinishReason
from twostroke.core.snapshot import Snapshot
from twostroke.serve.answers import Answers
from twostroke.serve.api_error import ApiError
from twostroke.serve.tally import Tally

PREFIX = "twostroke"
MODEL_LABEL = "model_name"  # vLLM's
# From half a millisecond, as tokens of small models come faster than the first bucket most dashboards have.
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
MAX_JUDGED = 64  # steps of a kind: enough for a mean, few enough to be priced at every scrape
REJECTIONS = ("queue_full", "context_length_exceeded", "closing", "insufficient_memory")
MAX_NEW = 256  # steps that wait to be counted: some tenths of a millisecond of work
KINDS = ("prefill", "decode", "mixed")  # of steps
LOST = (FinishReason.CANCELLED, FinishReason.ERROR)


PhaseUse = Mapping[str, tuple[float, float]]  # kind of step -> shares of the peaks of arithmetic and of reads


class ModelMetrics:
    """One model's numbers, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._ttft = self._seconds("time_to_first_token", "Arrival to the first token of an answer.")
        self._gaps = Tally(SECONDS)
        self._tpot = self._seconds(
            "request_time_per_output_token",
            "First to last token over their number less one, per answer of two or more.",
        )
        self._e2e = self._seconds("e2e_request_latency", "Arrival to the end of an answer, however it ended.")
        self._queue = self._seconds("request_queue_time", "Time before an answer's first step, less named parts.")
        self._prefill = self._seconds("request_prefill_time", "An answer's own time in prefill.")
        self._decode = self._seconds("request_decode_time", "An answer's own time in decode.")
        self._cancel = self._seconds("cancel_latency", "From a cancel until the answer's blocks are free.")
        self._step_times = {kind: Tally(SECONDS) for kind in KINDS}
        self._step_tokens = Tally(TOKENS)
        self._prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of answers that ended.")
        self._num_tokens = 0  # of answers; a counter of the library takes a lock for each
        self._ends = self._counter("request_success", "Answers that ended, by how.", labels=("finished_reason",))
        self._parts = self._counter("ledger_seconds", "Time of answers that ended, by name.", labels=("part",))
        self._stalls = self._counter("stall_seconds", "Time answers lost to other work.", labels=("kind",))
        self._wasted = self._counter("wasted_tokens", "Tokens computed for answers nobody got.", labels=("phase",))
        self._spec_tokens = self._counter("spec_tokens", "Guessed tokens, by what became of them.", labels=("kind",))
        self._spec_stops = self._counter("spec_stops", "Answers that guessed no more, by why.", labels=("reason",))
        self._steps = {kind: deque[StepRecord](maxlen=MAX_JUDGED) for kind in KINDS}
        self._latest: dict[tuple[int, int], _Latest] = {}  # of running answers
        self._new_steps: deque[StepRecord] = deque()  # wait to be counted, off the engine's thread

    def _seconds(self, name: str, text: str) -> Histogram:
        return Histogram(f"{name}_seconds", text, namespace=PREFIX, buckets=SECONDS, registry=self._registry)

    def _counter(self, name: str, text: str, *, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(name, text, labels, namespace=PREFIX, registry=self._registry)

    # Events

    def observe(self, answers: Answers, index: int, event: Event) -> None:
        """Called on the event loop with every event of every answer."""
        key = (id(answers), index)
        if isinstance(event, TokenEvent):
            self._num_tokens += 1
            self._follow(answers, key, event.time_s)
        else:
            self._observe_gaps(self._latest.pop(key, None))
            self._observe_end(answers, index, event)
        if len(self._new_steps) >= MAX_NEW:
            self.settle()

    def _follow(self, answers: Answers, key: tuple[int, int], time_s: float) -> None:
        """A token of the answer's newest step; the gaps before a step are known when it is over."""
        latest = self._latest.get(key)
        if latest is None:
            self._ttft.observe(time_s - answers.arrival_s)
            self._latest[key] = _Latest(time_s, time_s, 0)
        elif time_s == latest.time_s:
            latest.num_tokens += 1
        else:
            self._observe_gaps(latest)
            latest.before_s, latest.time_s, latest.num_tokens = latest.time_s, time_s, 1

    def _observe_gaps(self, latest: "_Latest | None") -> None:
        """k tokens of one step get a k-th of the gap each."""
        if latest is not None and latest.num_tokens:
            self._gaps.add((latest.time_s - latest.before_s) / latest.num_tokens, times=latest.num_tokens)

    def _observe_end(self, answers: Answers, index: int, event: FinishEvent) -> None:
        timing, usage, ledger = event.timing, event.usage, answers.ledgers[index]
        self._ends.labels(event.reason.value).inc()
        self._prompt_tokens.inc(usage.prompt_tokens)
        self._e2e.observe(timing.e2e_s)
        if timing.tpot_s is not None:
            self._tpot.observe(timing.tpot_s)
        for histogram, part in ((self._queue, Part.QUEUE), (self._prefill, Part.PREFILL), (self._decode, Part.DECODE)):
            histogram.observe(ledger.parts.get(part, 0.0))
        for part, time_s in ledger.parts.items():
            self._parts.labels(part.value).inc(max(time_s, 0.0))
        if event.speculation is not None:
            self._spec_tokens.labels("accepted").inc(event.speculation.accepted)
            self._spec_tokens.labels("refused").inc(event.speculation.drafted - event.speculation.accepted)
            if event.speculation.stop is not None:
                self._spec_stops.labels(event.speculation.stop.reason.value).inc()
        for stall in ledger.stalls:
            self._stalls.labels(stall.kind.value).inc(stall.time_s)
        if event.reason in LOST:
            self._observe_loss(answers, event)

    def _observe_loss(self, answers: Answers, event: FinishEvent) -> None:
        usage, finish_s = event.usage, event.account.finish_s
        num_prefilled = min(event.kv.tokens, usage.prompt_tokens) - usage.cached_tokens
        self._wasted.labels(Phase.PREFILL.value).inc(max(num_prefilled, 0))
        self._wasted.labels(Phase.DECODE.value).inc(usage.completion_tokens)
        if event.reason is FinishReason.CANCELLED and answers.cancelled_s is not None and finish_s is not None:
            self._cancel.observe(max(finish_s - answers.cancelled_s, 0.0))

    def observe_sent(self, answers: Answers, waited_s: float) -> None:
        """A reply is with its client, who let it wait for so long."""
        self._parts.labels(Part.BACKPRESSURE.value).inc(waited_s)

    def observe_step(self, record: StepRecord) -> None:
        """Called on the engine's thread after every step."""
        self._new_steps.append(record)

    def settle(self) -> None:
        """Count the steps that wait."""
        while self._new_steps:
            record = self._new_steps.popleft()
            phases = {row.phase for row in record.rows}
            kind = "mixed" if len(phases) > 1 else next(iter(phases)).value
            self._step_times[kind].add(record.handed_s - record.start_s)
            self._step_tokens.add(sum([row.num_tokens for row in record.rows]))
            self._steps[kind].append(record)

    def steps_since(self, start_s: float) -> dict[str, list[StepRecord]]:
        """Of the latest steps that were settled, those of each kind that began after `start_s`; for any thread."""
        recent = {
            kind: [step for step in list(steps) if step.start_s >= start_s] for kind, steps in self._steps.items()
        }
        return {kind: steps for kind, steps in recent.items() if steps}

    # Scraping

    def collect(self, now: Snapshot | None, use: PhaseUse) -> Iterator[Metric]:
        """Everything; `now` is the engine at this moment, None while it is not loaded."""
        self.settle()
        yield from self._registry.collect()
        yield from self._tallied()
        if now is not None:
            yield from gauges(now)
            yield utilisation(use)

    def _tallied(self) -> Iterator[Metric]:
        gaps = _histogram("inter_token_latency_seconds", "Gaps between the tokens of an answer.")
        self._gaps.tell(gaps)
        tokens = _histogram("iteration_tokens_total", "Tokens of one step.")
        self._step_tokens.tell(tokens)
        times = _histogram("step_seconds", "One step of the engine, plan to hand-over.", labels=("kind",))
        for kind, tally in self._step_times.items():
            if self._steps[kind]:
                tally.tell(times, (kind,))
        yield from (gaps, tokens, times)
        yield CounterMetricFamily(f"{PREFIX}_generation_tokens", "Tokens of answers.", value=self._num_tokens)


def _histogram(name: str, text: str, *, labels: tuple[str, ...] = ()) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"{PREFIX}_{name}", text, labels=labels)


class ServerMetrics:
    """What concerns no model, and the text of everything."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._rejections = Counter(
            "admission_rejections",
            "Requests that were not taken.",
            ("reason",),
            namespace=PREFIX,
            registry=self._registry,
        )

    def observe_refusal(self, error: ApiError) -> None:
        """A request that was not taken for want of room."""
        if error.code in REJECTIONS:
            self._rejections.labels(error.code).inc()

    def text(self, models: Iterable[tuple[str, ModelMetrics, Snapshot | None, PhaseUse]]) -> bytes:
        """Prometheus' text format: the server's numbers, and those of every model by its name."""
        families = {family.name: family for family in self._registry.collect()}
        for name, metrics, now, use in models:
            for family in metrics.collect(now, use):
                labelled = [each._replace(labels={MODEL_LABEL: name, **each.labels}) for each in family.samples]
                family.samples, known = [], families.setdefault(family.name, family)
                known.samples += labelled
        return generate_latest(_Scrape(families.values()))


@dataclass(slots=True)
class _Latest:
    """The newest step of a running answer: when the one before it was told, when it was, and its tokens."""

    before_s: float
    time_s: float
    num_tokens: int  # without the first of an answer, which has no gap


class _Scrape(CollectorRegistry):
    """Families as they are."""

    def __init__(self, families: Iterable[Metric]) -> None:
        super().__init__()
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def utilisation(use: PhaseUse) -> Metric:
    """What the latest steps used of the machine; no sample where none ran or the peaks are not known."""
    family = GaugeMetricFamily(
        f"{PREFIX}_phase_utilisation",
        "Share of the measured peak that the latest steps reached, 0 to 1.",
        labels=("phase", "resource"),
    )
    for phase, (compute, bandwidth) in use.items():
        family.add_metric((phase, "compute"), compute)
        family.add_metric((phase, "bandwidth"), bandwidth)
    return family


def gauges(now: Snapshot) -> Iterator[Metric]:
    """The engine at one moment."""
    held_share = now.blocks_held / now.blocks_total if now.blocks_total else 0.0
    for name, text, value in (
        ("num_requests_running", "Answers in steps.", now.num_running),
        ("num_requests_waiting", "Answers that wait for their first step or for their return.", now.num_waiting),
        ("kv_cache_usage_perc", "Share of KV blocks that running answers hold, 0 to 1.", held_share),
        ("kv_waste_ratio", "Share of the slots in held KV blocks without a token.", now.waste_ratio),
    ):
        yield GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)
    if now.refused_draft_share is not None:
        text = "Share of the predicted time of all steps that went into refused guesses."
        yield GaugeMetricFamily(f"{PREFIX}_spec_refused_ratio", text, value=now.refused_draft_share)
    blocks = GaugeMetricFamily(f"{PREFIX}_kv_blocks", "KV blocks by state.", labels=("state",))
    for state, count in (("free", now.blocks_free), ("cached", now.blocks_cached), ("held", now.blocks_held)):
        blocks.add_metric((state,), count)
    yield blocks
    for name, text, value in (
        ("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", now.prefix_queries),
        ("prefix_cache_hits", "Prompt tokens found there.", now.prefix_hits),
        ("num_preemptions", "Answers that lost their memory to others.", now.num_preemptions),
    ):
        yield CounterMetricFamily(f"{PREFIX}_{name}", text, value=value)
