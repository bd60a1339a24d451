"""What is kept of a request: its state while it runs, and for some time its ledger after it ended.

Answers tell it their events; the routes of /v1/requests read it. Bounded in number and in bytes, and gone with the
process.
"""

import json
from collections import OrderedDict
from typing import Any

from twostroke.core.event import FinishEvent
from twostroke.core.ledger import Ledger
from twostroke.serve.answers import Answers
from twostroke.serve.draft_counts import speculation_of
from twostroke.view.json_report import json_ledger


class RequestRecords:
    """Running requests by id, and the records of the last that ended, as JSON.

    A ledger names every request that its own waited for: as objects a record takes more than twice the memory, and
    one of many answers may have megabytes. Whatever its size, the last is kept.
    """

    def __init__(self, *, max_kept: int, max_bytes: int) -> None:
        self._running: dict[str, Answers] = {}
        self._ended: OrderedDict[str, bytes] = OrderedDict()
        self._max_kept = max_kept
        self._max_bytes = max_bytes
        self.num_bytes = 0  # of those that ended

    def __len__(self) -> int:
        """Running ones; what has ended holds no place while its ledger is read."""
        return sum(not answers.has_ended for answers in self._running.values())

    @property
    def num_kept(self) -> int:
        """Of those that ended."""
        return len(self._ended)

    @property
    def running(self) -> list[Answers]:
        return list(self._running.values())

    def find_running(self, request_id: str) -> Answers | None:
        return self._running.get(request_id)

    def open(self, answers: Answers) -> None:
        assert answers.request_id is not None, "answers of a server have an id"
        self._running[answers.request_id] = answers

    def close(self, answers: Answers) -> None:
        """It was refused before it ran, or it ended. May be called twice."""
        if answers.request_id is not None and self._running.get(answers.request_id) is answers:
            del self._running[answers.request_id]

    def observe_books(self, answers: Answers) -> None:
        """Called once the last answer has ended and every ledger is there."""
        if answers.request_id is not None:
            self.close(answers)
            self._keep(answers.request_id, answers)
            self._ended.move_to_end(answers.request_id)
            while len(self._ended) > 1 and (len(self._ended) > self._max_kept or self.num_bytes > self._max_bytes):
                self.num_bytes -= len(self._ended.popitem(last=False)[1])

    def observe_sent(self, answers: Answers) -> None:
        """Its reply is with the client: the record tells that too, if it is still kept."""
        if answers.request_id is not None and answers.request_id in self._ended:
            self._keep(answers.request_id, answers)

    def _keep(self, request_id: str, answers: Answers) -> None:
        record = json.dumps(record_of(answers)).encode()
        self.num_bytes += len(record) - len(self._ended.get(request_id, b""))
        self._ended[request_id] = record

    def find(self, request_id: str) -> dict[str, Any] | None:
        """The record of a request, running or ended."""
        if (answers := self._running.get(request_id)) is not None:
            return record_of(answers)
        record = self._ended.get(request_id)
        return None if record is None else dict(json.loads(record))


def record_of(answers: Answers, *, until_sent: bool = True) -> dict[str, Any]:
    """One request as JSON: counts, times and ledger of every answer that ended and whose ledger is read.

    `until_sent`: the time until the reply was with the client belongs to the answer that ended last, once it is.
    """
    sent_s = answers.sent_s if until_sent else None
    last = answers.last_finish[0] if sent_s is not None else None
    ledger_of = answers.ledger_until_sent if until_sent else answers.ledgers.__getitem__
    return {
        "id": answers.request_id,
        "object": "request",
        "status": "ended" if answers.is_booked else "running",
        "cancelled_by": answers.cause,
        "answers": [
            _answer(index, answers.finishes[index], ledger_of(index), sent_s=sent_s if index == last else None)
            for index in sorted(answers.ledgers)
        ],
    }


def _answer(index: int, finish: FinishEvent, ledger: Ledger, *, sent_s: float | None) -> dict[str, Any]:
    """`sent_s` is when the reply was with the client, of the answer that ended last."""
    usage, timing, kv = finish.usage, finish.timing, finish.kv
    return {
        "index": index,
        "finish_reason": finish.reason.value,
        "error": finish.error,
        "seed": finish.seed,
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
        },
        "ttft_s": timing.ttft_s,
        "first_text_s": timing.first_text_s,
        "tpot_s": timing.tpot_s,
        "e2e_s": timing.e2e_s if sent_s is None else sent_s - finish.account.arrival_s,
        "kv": {"tokens": kv.tokens, "bytes": kv.bytes, "blocks": kv.blocks, "waste_ratio": kv.waste_ratio},
        "ledger": json_ledger(ledger),
        **speculation_of(finish),
    }
