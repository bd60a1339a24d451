"""More than a server can do, for a long time: does anything crash, leak, lie or get lost?

    python bench/soak.py [--minutes 30] [-m MODEL] [--context 2048] [--seed 1]

A real server process gets 1.2 times the requests it can serve, a part of them from clients that leave, read slowly,
cancel, send nonsense or want a structure, and two SIGTERMs in between. What must hold, each printed as a verdict:
every process ends with 0; every reply is one of those foreseen; every greedy answer equals the offline engine's bit
for bit, or is its beginning where it was cut; every request a client knows of is one line of the log and counted
once in the metrics; memory does not grow. Exit code 1 when one of them does not hold.
"""

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from server_client import Reply, Server, ask, connection, get, head, metrics_of

from twostroke.llm import LLM
from twostroke.params import SamplingParams
from twostroke.structure import Structure, StructureKind

OVERLOAD = 1.2
NUM_LIVES = 3  # processes, one SIGTERM between two
MAX_OPEN = 48  # requests; more are told to come back
MAX_GROWTH = 1.0  # MB a minute
WARM_UP_SHARE = 0.3  # of a process's life; its KV store is filled before
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
WORDS = ("the", "a", "river", "stone", "seven", "light", "under", "over", "bread", "winter", "glass", "open", "night")
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
# How a client behaves, and its share of all.
SHARES = {
    "whole": 26,
    "stream": 26,
    "structured": 8,
    "several": 6,
    "sampled": 6,
    "slow": 5,
    "leaves": 8,
    "leaves_in_prompt": 4,
    "deleted": 5,
    "deadline": 2,
    "nonsense": 8,
    "half_body": 2,
}


@dataclass(frozen=True)
class Question:
    """A greedy request and the offline engine's answer to it."""

    path: str
    fields: dict[str, Any]
    text: str
    reason: str


@dataclass
class Life:
    """One server process: what its clients saw of it."""

    outcomes: dict[str, str] = field(default_factory=dict)  # request id -> how it ended for the client
    behaviours: dict[str, str] = field(default_factory=dict)
    num_answers: dict[str, int] = field(default_factory=dict)
    memory: list[tuple[float, int]] = field(default_factory=list)  # seconds, bytes
    is_closing: bool = False
    exit_code: int | None = None
    num_lines_before: int = 0


# Questions


def text_of(rng: random.Random, num_words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(num_words))


def make_questions(model: str, *, context: int, count: int, rng: random.Random) -> list[Question]:
    """Chats, completions and structured chats of all lengths, answered offline."""
    wishes: list[tuple[str, dict[str, Any], Any, SamplingParams]] = []
    for number in range(count):
        num_words = rng.choice((3, 10, 30, 100, context // 4))
        most = rng.choice((4, 16, 48, 96))
        prompt = text_of(rng, num_words)
        params, fields = SamplingParams(temperature=0, max_tokens=most), {"temperature": 0, "max_tokens": most}
        if number % 4 == 3:
            structure = Structure(kind=StructureKind.JSON_SCHEMA, source=json.dumps(SCHEMA))
            params = SamplingParams(temperature=0, max_tokens=64, structure=structure)
            form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
            fields |= {"max_tokens": 64, "response_format": form}
        if number % 2:
            chat = [{"role": "user", "content": f"Tell me about this: {prompt}"}]
            wishes.append((CHAT, fields | {"messages": chat}, chat, params))
        else:
            wishes.append((COMPLETIONS, fields | {"prompt": prompt}, prompt, params))
    with LLM(model, context=context) as llm:
        handles = [llm.submit(prompt, params) for _, _, prompt, params in wishes]
        results = [handle.result() for handle in handles]
    return [
        Question(path, fields, result.text, result.finish_reason.value)
        for (path, fields, _, _), result in zip(wishes, results, strict=True)
    ]


def nonsense(rng: random.Random, model: str, *, context: int) -> bytes:
    """A body that must be refused."""
    chat: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    bad: list[Any] = [
        chat | {"temperature": "warm"},
        chat | {"unheard_of": 1},
        chat | {"messages": []},
        chat | {"n": 10**6},
        chat | {"model": "../../etc/passwd"},
        chat | {"max_tokens": 10**9},
        chat | {"messages": [{"role": "user", "content": "word " * context * 2}]},
        chat | {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": 5}}}},
        chat | {"structured_outputs": {"regex": "("}},
        chat | {"logit_bias": {"-1": 1}},
    ]
    texts = [
        b"",
        b"{",
        b"[]",
        b'{"model": NaN}',
        b"\xff\xfe",
        b"{" * 5000,
        *(json.dumps(each).encode() for each in bad),
    ]
    return rng.choice(texts)


# Clients


class Clients:
    """Everybody who asks one server; the server may change under them."""

    def __init__(self, questions: list[Question], *, model: str, port: int, context: int, rng: random.Random) -> None:
        self.life = Life()
        self.faults: list[str] = []
        self.num_compared = self.num_compared_parts = 0
        self._questions = questions
        self._model = model
        self._port = port
        self._context = context
        self._rng = rng
        self._number = 0

    async def come(self) -> None:
        """One client from its first byte to its end."""
        life = self.life
        kind = self._rng.choices(list(SHARES), list(SHARES.values()))[0]
        self._number += 1
        request_id = f"soak-{self._number}"
        life.behaviours[request_id] = kind
        try:
            outcome = await self._behave(kind, request_id, life)
        except (ConnectionError, asyncio.IncompleteReadError, OSError):
            outcome = "unreachable"
        except TimeoutError:
            outcome = "timeout"
        life.outcomes[request_id] = outcome
        if outcome == "unreachable" and not life.is_closing:
            self.faults.append(f"{request_id} ({kind}): the connection failed while the server was up")
        if outcome == "timeout":
            self.faults.append(f"{request_id} ({kind}): no end of its reply")

    async def _behave(self, kind: str, request_id: str, life: Life) -> str:
        if kind == "nonsense":
            reply = await ask(
                self._port, CHAT, nonsense(self._rng, self._model, context=self._context), request_id=request_id
            )
            if not (400 <= reply.status < 500 or reply.status == 503) or reply.error is None:
                self.faults.append(f"{request_id}: nonsense was answered with {reply.status} {reply.body}")
            return self._outcome(reply, kind)
        if kind == "half_body":
            async with connection(self._port) as (_, writer):
                writer.write(head(CHAT, length=500, headers={"X-Request-Id": request_id}) + b'{"model": ')
                await writer.drain()
                await asyncio.sleep(self._rng.random() * 0.3)
            return "left_unheard"
        question = self._question(kind)
        fields = question.fields | {"model": self._model}
        if kind == "several":
            fields |= {"n": 3}
        if kind == "sampled":
            fields |= {"temperature": 0.9, "seed": self._rng.randrange(10)}
        if kind == "deadline":
            fields |= {"timeout_s": 0.3}
        is_stream = kind in ("stream", "slow", "leaves", "leaves_in_prompt") or (
            kind != "whole" and self._rng.random() < 0.5
        )
        if is_stream:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        life.num_answers[request_id] = fields.get("n", 1)
        return await self._ask(kind, question, fields, request_id)

    def _question(self, kind: str) -> Question:
        if kind == "structured":
            return self._rng.choice([each for each in self._questions if "response_format" in each.fields])
        if kind == "leaves_in_prompt":
            return max(self._rng.sample(self._questions, 6), key=lambda each: len(json.dumps(each.fields)))
        return self._rng.choice(self._questions)

    async def _ask(self, kind: str, question: Question, fields: dict[str, Any], request_id: str) -> str:
        reply = Reply()
        body = json.dumps(fields).encode()
        asking = asyncio.ensure_future(
            ask(self._port, question.path, body, request_id=request_id, reply=reply, pause_s=0.05 * (kind == "slow"))
        )
        if kind in ("leaves", "leaves_in_prompt", "deleted"):
            longest_s = 0.2 if kind == "leaves_in_prompt" else 2.0
            await asyncio.wait({asking}, timeout=self._rng.random() * longest_s)
        if kind == "deleted" and not asking.done():
            await get(self._port, f"/v1/requests/{request_id}", method="DELETE")
        if kind.startswith("leaves") and not asking.done():
            asking.cancel()
            await asyncio.wait({asking})
            self._compare(question, fields, reply, request_id, kind)
            return "left"
        await asking
        self._compare(question, fields, reply, request_id, kind)
        return self._outcome(reply, kind)

    def _outcome(self, reply: Reply, kind: str) -> str:
        if reply.status in (429, 503):
            return "closing" if reply.status == 503 else "busy"
        if 400 <= reply.status < 499:
            if kind != "nonsense":
                self.faults.append(f"a request that is right was refused ({kind}): {reply.status} {reply.error}")
            return "refused"
        if reply.error is None and reply.status == 200:
            if reply.events and not reply.is_done:
                self.faults.append("a stream ended without [DONE]")
            return "answered"
        said = str(reply.error)
        for mark, outcome in (("DELETE", "deleted"), ("timeout_s", "deadline"), ("closing", "closing")):
            if mark in said:
                return outcome
        self.faults.append(f"unforeseen: {reply.status} {said[:200]}")
        return "failed"

    def _compare(self, question: Question, fields: dict[str, Any], reply: Reply, request_id: str, kind: str) -> None:
        """A whole greedy answer equals the offline one; a part of it is its beginning."""
        if kind == "sampled" or reply.status != 200 or kind == "deadline":
            return
        reasons = reply.reasons()
        for index, text in reply.texts().items():
            is_whole = index in reasons
            is_right = (text, reasons.get(index)) == (question.text, question.reason)
            if not (is_right if is_whole else question.text.startswith(text)):
                self.faults.append(f"{request_id} ({kind}): {text!r} is not {question.text!r}")
            self.num_compared += is_whole
            self.num_compared_parts += not is_whole


# Verdicts


def check_log(life: Life, lines: list[dict[str, Any]], faults: list[str]) -> Counter[str]:
    """Every request a client knows of is one line of the log with the same end, and no other is there."""
    ended = [line for line in lines if line["logger"] == "twostroke.requests"]
    for line in lines:
        if line["level"] in ("error", "critical"):
            faults.append(f"the log has an error: {line['message'][:300]}")
    counts = Counter(line["id"] for line in ended)
    faults += [f"{name} has {count} lines in the log" for name, count in counts.items() if count > 1]
    reasons: Counter[str] = Counter()
    for line in ended:
        told = {answer["finish_reason"] for answer in line["answers"]}
        reasons.update(answer["finish_reason"] for answer in line["answers"])
        outcome = life.outcomes.get(line["id"])
        if outcome is None:
            faults.append(f"{line['id']} is in the log and no client knows it")
        elif outcome == "answered" and not told <= {"stop", "length"}:
            faults.append(f"{line['id']} was answered and the log says {told}")
        elif outcome == "answered" and len(line["answers"]) != life.num_answers[line["id"]]:
            faults.append(f"{line['id']} has {len(line['answers'])} answers in the log")
        elif outcome in ("refused", "busy"):
            faults.append(f"{line['id']} was {outcome} and the log has it")
        elif outcome in ("deleted", "deadline") and line["cancelled_by"] != outcome:
            faults.append(f"{line['id']} was {outcome} and the log says {line['cancelled_by']}")
    for name, outcome in life.outcomes.items():
        if outcome in ("answered", "deleted", "deadline") and name not in counts:
            faults.append(f"{name} was {outcome} and is not in the log")
    return reasons


async def check_numbers(port: int, reasons: Counter[str], lines: list[dict[str, Any]], faults: list[str]) -> None:
    """The metrics of an idle server are the sums of its log, and its records are the log's lines."""
    numbers = metrics_of((await get(port, "/metrics")).body)
    ends = {reason: numbers.get(f'request_success_total{{finished_reason="{reason}"}}', 0) for reason in reasons}
    if ends != dict(reasons):
        faults.append(f"metrics count {ends}, the log {dict(reasons)}")
    for name, field_name in (
        ("prompt_tokens_total", "prompt_tokens"),
        ("generation_tokens_total", "completion_tokens"),
    ):
        logged = sum(answer["usage"][field_name] for line in lines if "answers" in line for answer in line["answers"])
        if numbers[name] != logged:
            faults.append(f"{name} is {numbers[name]}, the log adds up to {logged}")
    if numbers["num_requests_running"] or numbers["num_requests_waiting"] or numbers['kv_blocks{state="held"}']:
        faults.append("an idle server has running requests or held blocks")
    for line in [line for line in lines if "answers" in line][-200:]:
        record = (await get(port, f"/v1/requests/{line['id']}")).body
        told = [answer["usage"] for answer in record["answers"]]
        if told != [answer["usage"] for answer in line["answers"]]:
            faults.append(f"the record of {line['id']} is not its line in the log")


def slope(memory: list[tuple[float, int]]) -> tuple[float, float]:
    """MB per minute by least squares after the warm-up, and the seconds it was seen for."""
    if len(memory) < 4:
        return 0.0, 0.0
    begin_s = memory[0][0] + WARM_UP_SHARE * (memory[-1][0] - memory[0][0])
    times, sizes = zip(*[each for each in memory if each[0] >= begin_s], strict=True)
    return statistics.linear_regression(times, sizes).slope * 60 / 2**20, times[-1] - times[0]


# The run


class Soak:
    def __init__(self, server: Server, clients: Clients, *, context: int) -> None:
        self._server = server
        self._clients = clients
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()
        self.lives: list[Life] = []
        self.max_health_s = 0.0

    async def begin_life(self) -> None:
        """A new process, its KV store touched once from end to end."""
        clients = self._clients
        before = len(self._server.lines()) if self._server.log.exists() else 0
        await asyncio.to_thread(self._server.start)
        clients.life = Life(num_lines_before=before)
        self.lives.append(clients.life)
        self._watcher = asyncio.ensure_future(self._watch(clients.life))
        rng = random.Random(len(self.lives))
        for _ in range(200):
            blocks = (await get(self._server.port, "/health")).body["kv_blocks"]
            if blocks["free"] <= blocks["total"] // 50:
                break
            bodies = [self._filler(rng) for _ in range(8)]
            await asyncio.gather(*(self._fill(body) for body in bodies))
        clients.life.memory.clear()

    def _filler(self, rng: random.Random) -> bytes:
        prompt = [rng.randrange(1000, 20_000) for _ in range(self._context - 2)]
        return json.dumps({"model": self._clients._model, "prompt": prompt, "max_tokens": 1}).encode()

    async def _fill(self, body: bytes) -> None:
        name = f"fill-{len(self._clients.life.outcomes)}-{random.randrange(10**9)}"
        self._clients.life.num_answers[name] = 1
        self._clients.life.outcomes[name] = self._clients._outcome(
            await ask(self._server.port, COMPLETIONS, body, request_id=name), "fill"
        )

    async def end_life(self) -> None:
        """SIGTERM under full load."""
        life = self._clients.life
        self._watcher.cancel()
        life.is_closing = True
        life.exit_code = await asyncio.to_thread(self._server.stop)
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _watch(self, life: Life) -> None:
        while True:
            began_s = time.perf_counter()
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reply = await get(self._server.port, "/health")
                self.max_health_s = max(self.max_health_s, time.perf_counter() - began_s)
                if reply.status != 200:
                    self._clients.faults.append(f"/health is {reply.status}: {reply.body}")
                life.memory.append((began_s, self._server.rss_bytes()))
            await asyncio.sleep(1.0)

    def _spawn(self) -> None:
        task = asyncio.ensure_future(self._clients.come())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def capacity(self, seconds: float) -> float:
        """Clients per second when sixteen at a time come one after the other."""
        ends_s, count = time.perf_counter() + seconds, 0

        async def one_after_another() -> None:
            nonlocal count
            while time.perf_counter() < ends_s:
                await self._clients.come()
                count += 1

        await asyncio.gather(*(one_after_another() for _ in range(16)))
        return count / seconds

    async def load(self, rate: float, *, seconds: float, rng: random.Random) -> None:
        """Poisson arrivals."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            await asyncio.sleep(rng.expovariate(rate))
            self._spawn()

    async def idle(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)
        while (await get(self._server.port, "/health")).body["requests"] != {"running": 0, "waiting": 0}:
            await asyncio.sleep(0.1)


async def run(options: argparse.Namespace, log: Path) -> bool:
    rng = random.Random(options.seed)
    print("offline answers ...", flush=True)
    questions = make_questions(options.model, context=options.context, count=options.questions, rng=rng)
    flags = ["-m", options.model, "--context", str(options.context), "--max-requests", str(MAX_OPEN), "--drain-s", "20"]
    server = Server(flags, log)
    await asyncio.to_thread(server.start)
    (name,) = [entry["id"] for entry in (await get(server.port, "/v1/models")).body["data"]]
    first_exit = await asyncio.to_thread(server.stop)
    clients = Clients(questions, model=name, port=server.port, context=options.context, rng=rng)
    soak = Soak(server, clients, context=options.context)
    faults = clients.faults
    try:
        await soak.begin_life()
        rate = OVERLOAD * await soak.capacity(options.capacity_seconds)
        print(f"capacity {rate / OVERLOAD:.1f} clients/s, {rate:.1f} will come", flush=True)
        for number in range(NUM_LIVES):
            await soak.load(rate, seconds=options.minutes * 60 / NUM_LIVES, rng=rng)
            life, is_last = clients.life, number == NUM_LIVES - 1
            if is_last:
                await soak.idle()
                lines = server.lines()[life.num_lines_before :]
                await check_numbers(server.port, check_log(life, lines, []), lines, faults)
            await soak.end_life()
            check_log(life, server.lines()[life.num_lines_before :], faults)
            print(f"process {number + 1}: exit {life.exit_code}, {dict(Counter(life.outcomes.values()))}", flush=True)
            if not is_last:
                await soak.begin_life()
    finally:
        server.kill()
    return report(soak, clients, first_exit=first_exit)


def report(soak: Soak, clients: Clients, *, first_exit: int) -> bool:
    """Print what must hold, and whether it does."""
    lives = soak.lives
    slopes = [slope(life.memory) for life in lives]
    seen_s = sum(seconds for _, seconds in slopes)
    mean = sum(growth * seconds for growth, seconds in slopes) / seen_s if seen_s else 0.0
    outcomes = Counter(outcome for life in lives for outcome in life.outcomes.values())
    kinds = Counter(kind for life in lives for kind in life.behaviours.values())
    faults = clients.faults
    unequal = [fault for fault in faults if " is not " in fault]
    exits = [first_exit, *(life.exit_code for life in lives)]
    each = ", ".join(f"{growth:+.2f}" for growth, _ in slopes)
    num_other = len(faults) - len(unequal)
    verdicts = {
        f"every process ended with 0: {exits}": exits == [0] * len(exits),
        f"greedy answers equal the offline engine's: {clients.num_compared} whole, {clients.num_compared_parts} parts, "
        f"{len(unequal)} differ": not unequal and clients.num_compared > 0,
        f"every reply foreseen, every request in log, records and metrics: {num_other} faults": num_other == 0,
        f"memory grows by {mean:+.2f} MB/min (each process {each}) over {seen_s:.0f} s, the limit is 1": mean
        < MAX_GROWTH,
    }
    print(f"clients: {dict(kinds)}\nends: {dict(outcomes)}\nslowest /health: {soak.max_health_s:.2f} s")
    for fault in faults[:30]:
        print(f"  fault: {fault}")
    for words, holds in verdicts.items():
        print(f"{'PASS' if holds else 'FAIL'}  {words}")
    return all(verdicts.values())


def main() -> None:
    parser = argparse.ArgumentParser(description="More than a server can do, for a long time.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("-m", "--model", default="smollm2:135m")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--capacity-seconds", type=float, default=15.0, help="to find out what a server can do")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        holds = asyncio.run(run(options, Path(folder) / "log"))
    print("VERDICT:", "all of it holds" if holds else "it does NOT hold")
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
