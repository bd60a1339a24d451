"""What replies say of drafts: OpenAI's counts in `usage`, the whole story beside a ledger and in the record."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from tests.builders_llm import LOOP, config_of, write_puppet
from tests.serve.serve_builders import client_of, make_finish
from twostroke.core.event import DraftStop, FinishEvent, NoDraft, Speculation, Usage
from twostroke.core.sequence import FinishReason
from twostroke.footprint import free_memory_bytes
from twostroke.serve.draft_counts import prediction_details, speculation_of
from twostroke.serve.llm_loader import LLMLoader
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.model_slot import served_models
from twostroke.view.drafts import drafts_json

STOP = DraftStop(NoDraft.COST, acceptance=0.1, verify_share=0.6, draft_share=0.0, num_sequences=1)


def finish(speculation: Speculation | None) -> FinishEvent:
    return replace(make_finish("r1", reason=FinishReason.STOP, usage=Usage(1, 0, 1)), speculation=speculation)


@contextmanager
def serving(home: Path, **options: Any) -> Iterator[TestClient]:
    """A client of a real server over one puppet."""
    path = str(write_puppet(home / "puppet.gguf"))
    loader = LLMLoader(config=config_of(home), kv="f32", **options)
    models = ModelRegistry(served_models([path]), loader=loader, free_bytes=free_memory_bytes)
    models.load_first()
    with closing(models), client_of(models) as client:
        yield client


def test_counts_are_those_of_all_answers_that_could_be_drafted_for() -> None:
    finishes = [finish(Speculation(40, 34, 1.75)), None, finish(None), finish(Speculation(3, 0, None, STOP))]
    assert prediction_details(finishes) == {"accepted_prediction_tokens": 34, "rejected_prediction_tokens": 9}
    assert prediction_details([finish(None), None]) == {}


def test_the_story_of_one_answer_is_the_one_of_the_report() -> None:
    speculation = Speculation(3, 0, None, STOP)
    assert speculation_of(finish(speculation)) == {"speculation": drafts_json(speculation)}
    assert speculation_of(finish(None)) == {}


def test_a_reply_has_the_counts_and_beside_a_ledger_the_gain(tmp_path: Path) -> None:
    body = {"model": "puppet.gguf", "prompt": LOOP * 8, "max_tokens": 64, "ignore_eos": True, "ledger": True}
    with serving(tmp_path, speculate="ngram") as client:
        reply = client.post("/v1/completions", json=body, headers={"x-request-id": "drafted"}).json()
        plain = client.post("/v1/completions", json={**body, "ledger": False}).json()
        record = client.get("/v1/requests/drafted").json()
        metrics = client.get("/metrics").text
    details = reply["usage"]["completion_tokens_details"]
    told = reply["speculation"]
    assert details["accepted_prediction_tokens"] == told["accepted"] > 30
    assert details["rejected_prediction_tokens"] == told["drafted"] - told["accepted"]
    assert reply["usage"]["completion_tokens"] == 64
    assert told["gain"] > 0
    assert record["answers"][0]["speculation"] == told
    assert "speculation" not in plain
    assert "completion_tokens_details" in plain["usage"]
    assert "twostroke_spec_refused_ratio" in metrics


def test_a_server_without_drafts_says_nothing_of_them(tmp_path: Path) -> None:
    body = {"model": "puppet.gguf", "prompt": LOOP * 8, "max_tokens": 16, "ignore_eos": True, "ledger": True}
    with serving(tmp_path) as client:
        reply = client.post("/v1/completions", json=body).json()
        metrics = client.get("/metrics").text
    assert "completion_tokens_details" not in reply["usage"]
    assert "speculation" not in reply
    assert "spec_refused_ratio" not in metrics
