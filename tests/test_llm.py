"""LLM as its users meet it, over real files: a puppet whose answers are known and a random llama."""

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders_gguf import write_llama
from tests.builders_llm import ANSWER, LOOP, config_of, open_llm, write_puppet
from tests.cases.puppet import EOS, byte_token
from tests.model.hf_builders import make_folder, write_json
from twostroke.chat.chat import Chat
from twostroke.core.account import StepRecord
from twostroke.core.event import Event, FinishEvent, TokenEvent
from twostroke.core.ledger import Part
from twostroke.core.peaks import Peaks
from twostroke.core.sequence import FinishReason
from twostroke.errors import (
    CapacityError,
    ChatTemplateError,
    ConfigError,
    ParamsError,
    PromptError,
    QueueFullError,
    RequestError,
    TwostrokeError,
)
from twostroke.llm import LLM
from twostroke.params import BeamSearch, SamplingParams
from twostroke.schedule.config import SchedulerConfig
from twostroke.structure import Structure, StructureKind
from twostroke.text.byte_alphabet import CHAR_OF_BYTE

WAIT_S = 20.0
ENDLESS = SamplingParams(max_tokens=900)
HELLO = [{"role": "user", "content": "hello"}]
ANSWER_IDS = (*(byte_token(byte) for byte in ANSWER.encode()), EOS)


@pytest.fixture(scope="module")
def puppet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_puppet(tmp_path_factory.mktemp("puppet") / "puppet.gguf")


@pytest.fixture(scope="module")
def llm(puppet: Path) -> Iterator[LLM]:
    with open_llm(puppet) as one:
        yield one


@pytest.fixture(scope="module")
def random_llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with open_llm(write_llama(tmp_path_factory.mktemp("random") / "llama.gguf", tensor_type="Q8_0")) as one:
        yield one


def is_idle(llm: LLM) -> bool:
    now = llm.snapshot()
    return now.num_running == now.num_waiting == now.blocks_held == 0


def wait_idle(llm: LLM) -> None:
    """Every snapshot waits for a step, so this ends as soon as the engine does."""
    for _ in range(10_000):
        if is_idle(llm):
            return
    raise AssertionError("still busy")


# Prompts


@pytest.mark.parametrize(
    ("prompts", "count"),
    [
        ("why?", 1),
        ([byte_token(ord("?"))], 1),
        (["why?"], 1),
        (["why?", "how?", "?"], 3),
        ([[byte_token(ord("?"))], [4, byte_token(ord("?"))]], 2),
        (["why?", [byte_token(ord("?"))]], 2),
        (("why?", "how?"), 2),
    ],
)
def test_generate_takes_one_prompt_or_several_of_either_kind(llm: LLM, prompts: Any, count: int) -> None:
    results = llm.generate(prompts)
    assert [result.text for result in results] == [ANSWER] * count
    assert {result.token_ids for result in results} == {ANSWER_IDS}
    assert {result.finish_reason for result in results} == {FinishReason.STOP}


def test_prompts_beyond_the_queue_wait_for_those_before_them(puppet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twostroke.load.SchedulerConfig", partial(SchedulerConfig, max_waiting=2))
    monkeypatch.setattr("twostroke.load.MAX_ROWS", 1)
    with open_llm(puppet) as llm:
        results = llm.generate(["?", "sky?"] * 10, SamplingParams(max_tokens=40))
        assert [result.text for result in results] == [ANSWER] * 20
        others = [llm.submit(LOOP, ENDLESS) for _ in range(3)]
        with pytest.raises(QueueFullError):
            llm.generate(["?"])
        for handle in others:
            handle.cancel()


def test_results_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    texts = ["Th", "?", "sk", "T"]
    results = llm.generate(texts)
    assert [result.text.strip() for result in results] == ["e sky", ANSWER, "y", "he sky"]


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ("", None),
        ([], "the prompt is empty"),
        ([[]], "the prompt is empty"),
        (7, "the prompt is of type int"),
        (None, "the prompt is of type NoneType"),
        ([1.5], "the prompt is of type float"),
        ([True], "whole numbers only"),
        ([5, -1], r"prompt\[1\] is -1"),
        ([512], r"prompt\[0\] is 512: the vocabulary has ids 0 to 511"),
        ([{"role": "user"}], "the prompt is of type dict"),
    ],
)
def test_prompts_that_are_none_are_refused(llm: LLM, prompts: Any, words: str | None) -> None:
    if words is None:  # a BOS alone is something to continue from
        assert llm.generate(prompts)[0].usage.prompt_tokens == 1
        return
    with pytest.raises(PromptError, match=words):
        llm.generate(prompts)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "user"}, r"messages\[0\]\.content is missing: it must be text or a list of text parts"),
        ({"role": "user", "content": None}, r"messages\[0\]\.content is missing"),
        ({"role": "user", "content": 7}, r"messages\[0\]\.content is of type int"),
        ({"role": "assistant", "tool_calls": []}, r"messages\[0\]\.content is missing"),
        ({"role": "user", "content": []}, r"messages\[0\]\.content is an empty list: it must be text or a list"),
        ({"role": "user", "content": ()}, r"messages\[0\]\.content is an empty list: it must be text or a list"),
    ],
)
def test_a_message_that_says_nothing_is_named(llm: LLM, message: dict[str, Any], words: str) -> None:
    with pytest.raises(PromptError, match=words) as refused:
        llm.chat([message])
    assert refused.value.field == "messages[0].content"


def test_text_parts_are_one_text(llm: LLM) -> None:
    parts = [{"type": "text", "text": "x "}, {"type": "text", "text": "y"}]
    for content in (parts, tuple(parts)):
        assert llm.encode([{"role": "user", "content": content}]) == llm.encode([{"role": "user", "content": "x y"}])
    assert llm.chat([{"role": "user", "content": parts}]).text == llm.chat([{"role": "user", "content": "x y"}]).text
    begun: list[dict[str, Any]] = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [{"type": "text", "text": "so"}]},
    ]
    begun_texts = [begun[0], {"role": "assistant", "content": "so"}]
    asked, told = (Chat.read(each, continue_final_message=True) for each in (begun, begun_texts))
    assert llm.encode(asked) == llm.encode(told)


@pytest.mark.parametrize(
    "part", ["x", 7, {}, {"type": "text"}, {"type": "text", "text": 7}, {"type": "text", "text": "a", "more": 1}]
)
def test_a_part_that_is_no_text_is_named(llm: LLM, part: object) -> None:
    content = [{"type": "text", "text": "x"}, part]
    with pytest.raises(PromptError, match=r"messages\[0\]\.content\[1\] is .*: it must be a text part") as refused:
        llm.chat([{"role": "user", "content": content}])
    assert refused.value.field == "messages[0].content[1]"


def test_a_bad_prompt_among_good_ones_leaves_nothing_running(llm: LLM) -> None:
    with pytest.raises(PromptError):
        llm.generate([[byte_token(ord("x"))], [512]], ENDLESS)
    wait_idle(llm)


@pytest.mark.parametrize("messages", ["hello", [], None, ["hello"], {"role": "user"}])
def test_chat_takes_messages_alone(llm: LLM, messages: Any) -> None:
    with pytest.raises(PromptError, match="messages must be a list") as caught:
        llm.chat(messages)
    assert caught.value.field == "messages"


def test_chat_answers_through_the_template(llm: LLM) -> None:
    result = llm.chat(HELLO)
    assert result.text == ANSWER
    assert result.usage.prompt_tokens == len(llm.tokenizer.encode("u:hello?"))


def test_a_model_without_a_template_says_raw(tmp_path: Path) -> None:
    with (
        open_llm(write_puppet(tmp_path / "puppet.gguf", template=None)) as llm,
        pytest.raises(ChatTemplateError, match=r"LLM\.generate"),
    ):
        llm.chat(HELLO)


@pytest.mark.parametrize("ask", ["generate", "stream", "submit"])
def test_half_a_character_is_refused_at_every_door(llm: LLM, ask: str) -> None:
    with pytest.raises(PromptError, match=r"the prompt has U\+D800, a lone surrogate, at character 3"):
        getattr(llm, ask)("why\ud800?")
    with pytest.raises(PromptError, match=r"messages\[0\]\.content has U\+D800"):
        llm.chat([{"role": "user", "content": "\ud800"}])


# Limits


def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenised(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object, **options: object) -> None:
        raise AssertionError("tokenised")

    longest = llm.tokenizer.most_token_bytes
    assert longest is not None
    digits = "7" * (1024 * longest - 1)  # 1024 tokens at least
    monkeypatch.setattr(llm.tokenizer, "encode_prompt", never)
    monkeypatch.setattr(llm.tokenizer, "encode_pieces", never)
    with pytest.raises(CapacityError) as refused:
        llm.generate(digits, SamplingParams(max_tokens=5))
    assert str(refused.value) == (
        f"the prompt has {len(digits)} bytes, a token at most {longest}: at least 1024 prompt tokens + max_tokens of 5 "
        f"= 1029, the context is 1024: shorten the prompt, by {longest - 1} bytes at the very least"
    )
    with pytest.raises(CapacityError, match="at least 1025 prompt tokens"):  # user: and the question mark
        llm.chat([{"role": "user", "content": digits}])
    with pytest.raises(AssertionError, match="tokenised"):
        llm.generate(digits[: 1023 * longest])


def test_a_conversation_too_long_for_any_template_shows_the_arithmetic(llm: LLM) -> None:
    with pytest.raises(CapacityError, match=r"the prompt has 5000000 bytes.* the context is 1024"):
        llm.chat([{"role": "user", "content": [{"type": "text", "text": "7" * 5_000_000}]}])
    with pytest.raises(CapacityError, match="the context is 1024"):
        llm.chat([{"role": "user", "content": "7" * 5_000_000}])


def test_a_context_too_small_shows_the_arithmetic_and_what_fits(llm: LLM) -> None:
    ids = [4] * 1000
    with pytest.raises(
        CapacityError, match=r"1000 prompt tokens \+ max_tokens of 25 = 1025, the context is 1024: "
    ) as e:
        llm.generate(ids, SamplingParams(max_tokens=25))
    assert str(e.value).endswith("max_tokens of at most 24 fits")
    assert llm.generate(ids, SamplingParams(max_tokens=24))[0].usage.completion_tokens <= 24
    with pytest.raises(CapacityError, match="shorten the prompt by 1 token or more"):
        llm.generate([4] * 1024, SamplingParams(max_tokens=1))
    with pytest.raises(CapacityError, match="1025"):
        llm.logits([4] * 1025)


def test_a_stated_context_below_the_models_own_says_which_one_fits(puppet: Path) -> None:
    with LLM(puppet, config=config_of(puppet.parent), context=2) as llm:
        with pytest.raises(CapacityError) as e:
            llm.generate([4], SamplingParams(max_tokens=286))
        assert str(e.value) == (
            "1 prompt token + max_tokens of 286 = 287, the context is 2: "
            "max_tokens of at most 1 fits, or a context of at least 287 fits"
        )
        with pytest.raises(CapacityError, match=r"with max_tokens of 1 shorten the prompt by 1 token or more$"):
            llm.generate([4, 5], SamplingParams(max_tokens=1023))
        assert len(llm.generate([4], SamplingParams(max_tokens=1, ignore_eos=True))[0].token_ids) == 1


def test_a_question_is_not_blamed_for_the_tokens_of_its_template(puppet: Path) -> None:
    with LLM(puppet, config=config_of(puppet.parent), context=3) as llm:
        num_prompt = len(llm.encode([{"role": "user", "content": "x"}]))
        num_said = len(llm.tokenizer.encode("x", add_bos=False))
        assert num_prompt - num_said >= 3
        with pytest.raises(CapacityError) as e:
            llm.chat([{"role": "user", "content": "x"}])
        assert str(e.value).startswith(f"{num_prompt} prompt tokens ({num_prompt - num_said} of the chat template) + ")
        assert str(e.value).endswith(f", the context is 3: a context of at least {num_prompt + 256} fits")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"context": 0}, "context is 0"),
        ({"context": 1025}, "made for 1 to 1024"),
        ({"kv": "int4"}, "kv is 'int4': it must be one of f32, f16, bf16, int8"),
        ({"threads": 0}, "threads is 0"),
        ({"threads": True}, "threads is True"),
        ({"threads": "2"}, "threads is '2'"),
        ({"threads": 1.5}, "threads is 1.5"),
        ({"context": 100.5}, "context is 100.5"),
        ({"context": "9"}, "context is '9'"),
        ({"context": True}, "context is True"),
    ],
)
def test_options_out_of_range_name_the_limit(puppet: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        LLM(puppet, config=config_of(puppet.parent), **options)


def test_facts_are_those_asked_for(puppet: Path) -> None:
    with LLM(puppet, config=config_of(puppet.parent), context=100, kv="f16", threads=2) as llm:
        assert (llm.context, llm.kv_precision, llm.threads) == (100, "f16", 2)
        assert llm.path == puppet
        assert llm.model_name == str(puppet)
        assert llm.kv_bytes > 0
        assert llm.weight_bytes > 512 * 512 * 4


# Streams and handles


def test_a_stream_brings_tokens_and_then_the_end(llm: LLM) -> None:
    events = list(llm.stream("why?"))
    assert all(isinstance(event, TokenEvent) for event in events[:-1])
    assert isinstance(events[-1], FinishEvent)
    assert [event.token_id for event in events if isinstance(event, TokenEvent)] == list(ANSWER_IDS)
    assert "".join(event.text for event in events) == ANSWER


@pytest.mark.parametrize("num_read", [0, 1, 5])
def test_a_stream_that_is_dropped_cancels_its_request(llm: LLM, num_read: int) -> None:
    stream = llm.stream(LOOP, ENDLESS)
    for _ in range(num_read):
        next(stream)
    del stream
    wait_idle(llm)


def test_a_stream_that_is_closed_tells_the_end(llm: LLM) -> None:
    with llm.stream(LOOP, ENDLESS) as stream:
        next(stream)
    stream.close()
    *_, finish = stream
    assert isinstance(finish, FinishEvent)
    assert finish.reason is FinishReason.CANCELLED
    assert list(stream) == []
    wait_idle(llm)


def test_a_handle_cancels(llm: LLM) -> None:
    handle = llm.submit(LOOP, ENDLESS)
    handle.cancel()
    result = handle.result(WAIT_S)
    assert result.finish_reason is FinishReason.CANCELLED
    assert result.error is None
    assert set(result.text) <= set(LOOP)
    handle.cancel()
    assert handle.result() == result


def test_a_result_that_is_late_is_a_timeout_and_can_be_asked_again(llm: LLM) -> None:
    handle = llm.submit(LOOP, ENDLESS)
    with pytest.raises(TimeoutError, match="within 0"):
        handle.result(0.0)
    assert handle.result(WAIT_S).finish_reason is FinishReason.LENGTH


def test_an_arrival_before_the_call_is_parse_time(llm: LLM) -> None:
    result = llm.submit("why?", arrival_s=llm.now() - 1.0).result(WAIT_S)
    assert result.ledger.parts["parse"] == pytest.approx(1.0, abs=0.05)  # type: ignore[index]
    assert result.timing.e2e_s > 1.0
    assert result.ledger.total_s == pytest.approx(result.timing.e2e_s, abs=1e-6)


def test_what_a_request_waited_for_a_load_is_not_parse_time(llm: LLM) -> None:
    result = llm.submit("why?", arrival_s=llm.now() - 1.0, load_s=0.75).result(WAIT_S)
    assert result.ledger.parts["load"] == 0.75  # type: ignore[index]
    assert result.ledger.parts["parse"] == pytest.approx(0.25, abs=0.05)  # type: ignore[index]
    assert result.ledger.total_s == pytest.approx(result.timing.e2e_s, abs=1e-6)


# Listeners, on the engine's own thread


def test_a_listener_may_cancel(llm: LLM) -> None:
    handles: list[Any] = []
    known = threading.Event()

    def listener(event: Event) -> None:
        if known.wait(WAIT_S) and isinstance(event, TokenEvent):
            handles[0].cancel()

    handles.append(llm.submit(LOOP, ENDLESS, on_event=listener))
    known.set()
    assert handles[0].result(WAIT_S).finish_reason is FinishReason.CANCELLED


@pytest.mark.parametrize("act", ["submit", "close", "snapshot", "logits", "result"])
def test_a_listener_that_would_wait_for_itself_is_told_so(puppet: Path, act: str) -> None:
    with open_llm(puppet) as llm:
        handles: list[Any] = []
        known = threading.Event()

        def listener(event: Event) -> None:
            if not known.wait(WAIT_S) or isinstance(event, FinishEvent):
                return
            acts = {
                "submit": lambda: llm.submit("why?"),
                "close": llm.close,
                "snapshot": llm.snapshot,
                "logits": lambda: llm.logits([1]),
                "result": handles[0].result,
            }
            acts[act]()

        handles.append(llm.submit("why?", on_event=listener))
        known.set()
        result = handles[0].result(WAIT_S)
        assert result.finish_reason is FinishReason.ERROR
        assert "hand over to another thread" in str(result.error)
        assert llm.generate("why?")[0].text == ANSWER


@pytest.mark.parametrize("error", [ValueError("deaf"), SystemExit(3)])
def test_a_listener_that_raises_ends_its_request_with_an_error_and_hears_the_end(
    llm: LLM, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Event] = []

    def deaf(event: Event) -> None:
        heard.append(event)
        raise error

    handle = llm.submit(LOOP, ENDLESS, on_event=deaf)
    assert llm.generate("why?")[0].text == ANSWER
    result = handle.result(WAIT_S)
    assert result.finish_reason is FinishReason.ERROR
    assert repr(error) in str(result.error)
    assert [type(event) for event in heard] == [TokenEvent, FinishEvent]
    assert repr(error) in caplog.text or type(error).__name__ in caplog.text


# Threads


def test_eight_threads_submit_at_once(llm: LLM) -> None:
    texts: dict[int, list[str]] = {}

    def ask(number: int) -> None:
        texts[number] = [llm.submit("?" * (number + 1)).result(WAIT_S).text for _ in range(5)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert texts == {number: [ANSWER] * 5 for number in range(8)}
    assert is_idle(llm)


def test_request_ids_are_never_given_twice(llm: LLM) -> None:
    ids: list[str] = []
    threads = [
        threading.Thread(target=lambda: ids.extend(llm.submit("?").request_id for _ in range(10))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(set(ids)) == 80
    wait_idle(llm)


def test_two_models_at_once_answer_like_one(puppet: Path, random_llm: LLM) -> None:
    alone = random_llm.generate([5, 6, 7], SamplingParams(max_tokens=20, ignore_eos=True))[0].token_ids
    with open_llm(puppet) as other:
        handles = [other.submit(LOOP, ENDLESS) for _ in range(2)]
        beside = random_llm.generate([5, 6, 7], SamplingParams(max_tokens=20, ignore_eos=True))[0].token_ids
        assert beside == alone
        assert {handle.result(WAIT_S).finish_reason for handle in handles} == {FinishReason.LENGTH}


# The end


def test_closing_cancels_what_runs_and_refuses_what_comes(puppet: Path) -> None:
    llm = open_llm(puppet)
    running, stream = llm.submit(LOOP, ENDLESS), llm.stream(LOOP, ENDLESS)
    first = next(stream)
    llm.close()
    llm.close()
    assert isinstance(first, TokenEvent)
    assert running.result(WAIT_S).finish_reason is FinishReason.CANCELLED
    *_, finish = stream
    assert isinstance(finish, FinishEvent)
    assert finish.reason is FinishReason.CANCELLED
    running.cancel()
    stream.close()
    for act in (lambda: llm.generate("why?"), lambda: llm.chat(HELLO), lambda: llm.logits([1]), llm.snapshot):
        with pytest.raises(TwostrokeError, match="closed"):
            act()


def test_a_model_dropped_without_close_is_freed(puppet: Path) -> None:
    llm = open_llm(puppet)
    llm.submit(LOOP, ENDLESS)
    reader = weakref.ref(llm._loaded.reader)
    before = threading.active_count()
    del llm
    for _ in range(1000):
        gc.collect()
        if reader() is None and threading.active_count() < before:
            return
        time.sleep(0.01)
    raise AssertionError("the model is still in memory")


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_waits_for_no_answer_of_its_parent(puppet: Path) -> None:
    with open_llm(puppet) as llm:
        running, stream = llm.submit(LOOP, ENDLESS), llm.stream(LOOP, ENDLESS)
        child = os.fork()
        if child == 0:
            refused = 0
            for act in (running.result, lambda: next(stream), lambda: llm.generate(LOOP)):
                try:
                    act()
                except TwostrokeError as error:
                    refused += "fork" in str(error)
            running.cancel()
            llm.close()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert running.result(WAIT_S).finish_reason is FinishReason.LENGTH
        stream.close()


def test_closing_while_others_submit_leaves_nobody_waiting(puppet: Path) -> None:
    llm = open_llm(puppet)
    outcomes: list[object] = []
    started = threading.Barrier(9)

    def ask() -> None:
        started.wait(WAIT_S)
        try:
            while True:
                outcomes.append(llm.submit(LOOP, ENDLESS).result(WAIT_S).finish_reason)
        except TwostrokeError as error:
            outcomes.append(type(error))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    started.wait(WAIT_S)
    closers = [threading.Thread(target=llm.close) for _ in range(2)]
    for thread in closers:
        thread.start()
    for thread in [*closers, *threads]:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert outcomes.count(TwostrokeError) == 8
    assert set(outcomes) <= {TwostrokeError, FinishReason.CANCELLED, FinishReason.LENGTH}


def test_a_failed_request_raises_from_generate(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = llm._loaded.reader

    def broken(step: object) -> object:
        monkeypatch.undo()
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(reader, "run", broken)
    with pytest.raises(RequestError, match="the engine failed: ZeroDivisionError"):
        llm.generate("why?")
    assert llm.generate("why?")[0].text == ANSWER


def ask_for_ever(llm: LLM) -> None:
    while True:
        llm.generate([LOOP, LOOP], ENDLESS)


def test_ctrl_c_while_waiting_leaves_nothing_running(llm: LLM) -> None:
    main = threading.main_thread().ident
    assert main is not None
    in_time = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
    in_time.start()
    with pytest.raises(KeyboardInterrupt):
        ask_for_ever(llm)
    wait_idle(llm)


# Scores


def test_logits_are_those_the_greedy_choice_is_made_from(random_llm: LLM) -> None:
    prompt = [1, 5, 9, 70, 200]
    answer = random_llm.generate(prompt, SamplingParams(max_tokens=100, ignore_eos=True))[0].token_ids
    scores = random_llm.logits([*prompt, *answer])
    assert scores.dtype == np.float32
    assert scores.shape == (105, random_llm.program.vocab_size)
    assert scores.argmax(axis=1)[len(prompt) - 1 : -1].tolist() == list(answer)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"params": SamplingParams(stop_token_ids=(3, 512))},
            "stop_token_ids has 512: the vocabulary has ids 0 to 511",
        ),
        (
            {"params": SamplingParams(logit_bias=((512, 1.0),))},
            "logit_bias has 512: the vocabulary has ids 0 to 511",
        ),
        (
            {"params": SamplingParams(bad_words=("fine", (5, 512)))},
            "bad_words has 512: the vocabulary has ids 0 to 511",
        ),
        ({"request_id": ""}, "request_id is '': it must be text or None"),
        ({"request_id": 7}, "request_id is 7: it must be text or None"),
        ({"choice_index": -1}, "choice_index is -1: it must be a whole number from 0"),
        ({"choice_index": 2**32}, "choice_index is 4294967296"),
        ({"choice_index": True}, "choice_index is True"),
        ({"salt": None}, "salt is None: it must be text"),
        ({"arrival_s": float("nan")}, "arrival_s is nan: it must be a moment of the past"),
        ({"arrival_s": float("-inf")}, "arrival_s is -inf"),
        ({"arrival_s": 1e30}, r"arrival_s is 1e\+30"),
        ({"arrival_s": "now"}, "arrival_s is 'now'"),
        ({"arrival_s": True}, "arrival_s is True"),
        ({"on_event": 7}, "on_event is of type int: it must be a function of one event"),
    ],
)
def test_options_of_a_request_that_cannot_be_are_refused(llm: LLM, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParamsError, match=words) as refused:
        llm.submit("why?", **options)
    assert refused.value.field in {*options, "stop_token_ids", "logit_bias", "bad_words"}
    wait_idle(llm)


@pytest.mark.parametrize("params", [3, {}, "greedy"])
def test_params_of_another_type_are_refused(llm: LLM, params: Any) -> None:
    with pytest.raises(ParamsError, match="it must be SamplingParams or None"):
        llm.generate(LOOP, params)


@pytest.mark.parametrize("field", ["temperature", "repetition_penalty", "top_p"])
def test_a_whole_number_beyond_every_float_is_out_of_range(field: str) -> None:
    wish: dict[str, Any] = {field: 10**400}
    with pytest.raises(ParamsError, match=field):
        SamplingParams(**wish)


def test_logits_beyond_the_free_memory_are_refused_with_the_arithmetic(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twostroke.llm.available_memory_bytes", lambda: 4 * 512 * 99)
    assert llm.logits([5] * 99).shape == (99, 512)
    with pytest.raises(CapacityError, match=r"100 tokens x 512 ids need 0\.00 GB.*99 tokens fit"):
        llm.logits([5] * 100)


def test_scores_of_a_text_are_the_same_beside_others(random_llm: LLM) -> None:
    ids = [1, *range(5, 200)]
    alone = random_llm.logits(ids)
    handle = random_llm.submit([3, 4], SamplingParams(max_tokens=200, ignore_eos=True))
    beside = random_llm.logits(ids)
    handle.cancel()
    assert (alone == beside).all()
    assert (random_llm.logits(ids[:50]) == alone[:50]).all()


@pytest.mark.parametrize("ids", [[], "", [512], [1.0], None])
def test_logits_of_what_is_no_text_are_refused(llm: LLM, ids: Any) -> None:
    if ids == "":
        assert llm.logits(ids).shape == (1, 512)
        return
    with pytest.raises(PromptError):
        llm.logits(ids)


def test_seeds_repeat_and_an_unseeded_request_tells_its_seed(random_llm: LLM) -> None:
    def sample(seed: int | None) -> Any:
        return random_llm.generate([5], SamplingParams(temperature=1.0, seed=seed, max_tokens=20, ignore_eos=True))[0]

    unseeded = sample(None)
    assert sample(unseeded.seed).token_ids == unseeded.token_ids
    assert sample(1).token_ids != sample(2).token_ids


def test_a_seed_that_was_drawn_is_the_same_number_to_a_client_of_doubles(random_llm: LLM) -> None:
    results = random_llm.generate([[5]] * 8, SamplingParams(max_tokens=1))
    assert all(float(result.seed) == result.seed < 2**53 for result in results)


def test_the_report_counts_both_phases(llm: LLM) -> None:
    result = llm.generate("why is it so?")[0]
    report = llm.report(result, None)
    assert report.prefill.tokens == result.usage.prompt_tokens - result.usage.cached_tokens
    assert report.decode.tokens == result.usage.completion_tokens - 1
    assert report.prefill.bound_by is None


def test_a_token_without_weights_is_refused_before_it_can_fail_its_neighbours(tmp_path: Path) -> None:
    """A folder's tokenizer knows 256 bytes, its embedding has 11 rows."""
    folder = make_folder(tmp_path / "model")
    model = {"type": "BPE", "vocab": {char: byte for byte, char in enumerate(CHAR_OF_BYTE.values())}, "merges": []}
    pre_tokenizer = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    write_json(folder / "tokenizer.json", {"model": model, "pre_tokenizer": pre_tokenizer})
    with open_llm(folder, context=32) as llm:
        assert (llm.tokenizer.vocab_size, llm.program.vocab_size) == (256, 11)
        for ask in (llm.generate, llm.logits):
            with pytest.raises(PromptError, match=r"the prompt has the token 200: the model has weights for 0 to 10"):
                ask([3, 200])
        assert len(llm.generate([3, 10], SamplingParams(max_tokens=2, ignore_eos=True))[0].token_ids) == 2


def test_prompts_of_one_call_arrived_together_and_waiting_for_each_other_is_queue(llm: LLM) -> None:
    results = llm.generate([[EOS + 10], [EOS + 11], [EOS + 12]], SamplingParams(max_tokens=2))
    assert len({result.account.arrival_s for result in results}) == 1
    for result in results:
        assert Part.PARSE not in result.ledger.parts
        assert result.ledger.total_s == pytest.approx(result.timing.e2e_s, abs=1e-9)


def test_a_request_goes_by_the_name_it_was_given_and_two_at_once_may_not_share_it(llm: LLM) -> None:
    handle = llm.submit(LOOP, ENDLESS, request_id="mine")
    with pytest.raises(ParamsError, match="request_id is 'mine': a running request has it"):
        llm.submit(LOOP, ENDLESS, request_id="mine")
    handle.cancel()
    assert handle.result(WAIT_S).request_id == "mine"
    assert llm.submit(LOOP, SamplingParams(max_tokens=1), request_id="mine").result(WAIT_S).request_id == "mine"


def test_choices_of_one_seed_differ_and_repeat(random_llm: LLM) -> None:
    params = SamplingParams(temperature=1.0, seed=5, max_tokens=12, ignore_eos=True)
    first, second, again = (
        random_llm.submit([5, 6], params, choice_index=choice).result(WAIT_S).token_ids for choice in (0, 1, 1)
    )
    assert first != second
    assert second == again


def test_prefixes_are_shared_among_requests_of_one_salt_alone(random_llm: LLM) -> None:
    prompt = list(range(100, 164))
    cached = [
        random_llm.submit(prompt, SamplingParams(max_tokens=1), salt=salt).result(WAIT_S).usage.cached_tokens
        for salt in ("tenant a", "tenant b", "tenant a", "")
    ]
    assert cached == [0, 0, 48, 0]


def test_text_is_encoded_as_a_request_would_read_it_and_decoded_with_its_control_tokens(llm: LLM) -> None:
    for prompt in ("why?", [7, 8, 9], HELLO):
        ids = llm.encode(prompt)
        asked = llm.submit(prompt, SamplingParams(max_tokens=1)).result(WAIT_S)
        assert len(ids) == asked.usage.prompt_tokens
    assert llm.encode([7, 8, 9]) == [7, 8, 9]
    assert llm.decode([*(byte_token(byte) for byte in ANSWER.encode()), EOS]).startswith(ANSWER)
    assert llm.decode([EOS]) != ""
    with pytest.raises(PromptError):
        llm.decode([512])


def test_a_prompt_behind_other_tokens_brings_no_bos_of_its_own(tmp_path: Path) -> None:
    with open_llm(write_llama(tmp_path / "llama.gguf", tensor_type="Q8_0")) as llm:
        bos = llm.tokenizer.special.bos_id
        assert llm.tokenizer.special.adds_bos
        assert llm.encode("hi")[0] == bos
        assert llm.encode("hi", after=[bos, 7]) == [bos, 7, *llm.encode("hi")[1:]]
        assert llm.encode([9], after=[7]) == [7, 9]


def test_a_model_tells_what_its_file_says(llm: LLM, puppet: Path) -> None:
    facts = llm.facts()
    assert (facts.architecture, facts.num_bytes) == ("llama", puppet.stat().st_size)
    assert facts.metadata["tokenizer.ggml.tokens"] is None
    assert len(llm.facts(with_arrays=True).metadata["tokenizer.ggml.tokens"]) == llm.tokenizer.vocab_size


def test_no_end_comes_before_the_fewest_tokens_and_a_bias_forces_a_token(llm: LLM) -> None:
    whole = llm.generate("why?")[0]
    assert whole.token_ids == ANSWER_IDS
    longer = llm.generate("why?", SamplingParams(min_tokens=len(ANSWER_IDS) + 3, max_tokens=40))[0]
    assert longer.token_ids[: len(ANSWER_IDS) - 1] == ANSWER_IDS[:-1]
    assert EOS not in longer.token_ids[: len(ANSWER_IDS) + 3]
    forced = llm.generate("why?", SamplingParams(logit_bias=((7, 100.0),), max_tokens=3))[0]
    assert forced.token_ids == (7, 7, 7)


def test_the_fingerprint_names_model_kernels_and_cache(llm: LLM, random_llm: LLM) -> None:
    assert llm.fingerprint != random_llm.fingerprint
    assert llm.fingerprint.endswith(f"-{llm.kv_precision}")
    assert llm.isa in llm.fingerprint


# Beam search


def test_a_search_finds_the_puppets_answer_with_its_certainty(llm: LLM) -> None:
    result = llm.beam_search("why?", BeamSearch(width=3, num_return=2), max_tokens=40)
    best, second = result.beams
    assert (result.text, result.token_ids, result.finish_reason) == (ANSWER, ANSWER_IDS, FinishReason.STOP)
    assert (best.text, best.token_ids, best.finish_reason) == (ANSWER, ANSWER_IDS, FinishReason.STOP)
    assert best.score == pytest.approx(0.0, abs=1e-6)
    assert second.score < -1
    wait_idle(llm)


def test_a_search_of_a_conversation_and_beside_others(llm: LLM) -> None:
    handles = [llm.submit("sky?", SamplingParams(max_tokens=40)) for _ in range(3)]
    assert llm.beam_search(HELLO).text == ANSWER
    assert [handle.result(WAIT_S).text for handle in handles] == [ANSWER] * 3


def test_beams_go_through_generate_and_the_report_counts_their_rows(random_llm: LLM) -> None:
    wish = SamplingParams(max_tokens=6, ignore_eos=True, beam=BeamSearch(width=4, num_return=4))
    (result,) = random_llm.generate([5, 6, 7], wish)
    decode = random_llm.report(result, None).decode
    assert decode.tokens == 4 * 5  # the first token of each came with the prompt
    assert sorted(beam.score for beam in result.beams)[::-1] == [beam.score for beam in result.beams]
    assert len({beam.token_ids for beam in result.beams}) == 4


def test_a_cancelled_search_ends_and_frees_its_beams(llm: LLM) -> None:
    handle = llm.submit(LOOP, SamplingParams(max_tokens=900, beam=BeamSearch()))
    handle.cancel()
    assert handle.result(WAIT_S).finish_reason is FinishReason.CANCELLED
    wait_idle(llm)


def test_an_answer_follows_its_structure_whatever_the_model_would_say(llm: LLM) -> None:
    digits = Structure(kind=StructureKind.REGEX, source="[0-9]{3}")
    free, held = (llm.submit("why?", SamplingParams(structure=wish)) for wish in (None, digits))
    assert held.result(WAIT_S).text.isdigit()
    assert held.result(WAIT_S).finish_reason is FinishReason.STOP
    assert held.result(WAIT_S).token_ids[-1] == EOS
    assert Part.GRAMMAR_COMPILE in held.result(WAIT_S).ledger.parts
    assert free.result(WAIT_S).text == ANSWER


@pytest.mark.parametrize(("max_tokens", "reason"), [(1, "length"), (3, "length"), (4, "stop"), (9, "stop")])
def test_a_structure_that_is_not_complete_at_the_limit_says_so(llm: LLM, max_tokens: int, reason: str) -> None:
    digits = Structure(kind=StructureKind.REGEX, source="[0-9]{3}")
    (result,) = llm.generate("why?", SamplingParams(structure=digits, max_tokens=max_tokens))
    assert result.finish_reason == reason
    assert len(result.token_ids) == min(max_tokens, 4)


def test_a_vocabulary_that_was_prepared_is_not_read_again(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    llm.prepare_structures()
    monkeypatch.setattr("twostroke.sample.grammar.GrammarCompiler.__init__", None)  # what is made anew would fail
    digits = Structure(kind=StructureKind.REGEX, source="[0-9]{4}")
    (result,) = llm.generate("why?", SamplingParams(structure=digits))
    assert len(result.text) == 4


def test_a_model_whose_vocabulary_was_prepared_is_freed(puppet: Path) -> None:
    """The library's objects cannot be looked into by the collector: what they hold must not hold the model."""
    with open_llm(puppet) as llm:
        llm.prepare_structures()
        llm.generate("why?", SamplingParams(structure=Structure(kind=StructureKind.REGEX, source="[0-9]{3}")))
        model = weakref.ref(llm)
    del llm
    gc.collect()
    assert model() is None


def test_a_structure_that_does_not_compile_is_refused_before_anything_is_queued(llm: LLM) -> None:
    with pytest.raises(ParamsError, match="structure of kind regex is refused"):
        llm.generate("why?", SamplingParams(structure=Structure(kind=StructureKind.REGEX, source="(")))
    wait_idle(llm)


def test_what_steps_used_of_the_machine_is_their_cost_over_their_time(llm: LLM) -> None:
    steps: list[StepRecord] = []
    llm.observe_steps(steps.append)
    llm.generate("why?", SamplingParams(max_tokens=4, ignore_eos=True))
    slow = Peaks(
        threads=1, isa=llm.isa, int8_ops_per_s=1e9, bf16_ops_per_s=1e9, fp32_ops_per_s=1e9, read_bytes_per_s=1e9
    )
    fast = replace(slow, int8_ops_per_s=2e9, bf16_ops_per_s=2e9, fp32_ops_per_s=2e9, read_bytes_per_s=4e9)
    compute, bandwidth = llm.use_of(steps, slow)
    assert compute > 0
    assert bandwidth == pytest.approx(
        sum(llm.weight_bytes for _ in steps) / 1e9 / sum(step.logits_s - step.start_s for step in steps), rel=0.2
    )
    assert list(llm.use_of(steps, fast)) == pytest.approx([compute / 2, bandwidth / 4])


def test_a_printed_result_is_short_and_shows_what_a_person_reads(random_llm: LLM) -> None:
    params = SamplingParams(max_tokens=64, ignore_eos=True, logprobs=5, prompt_logprobs=5)
    handle = random_llm.submit([5, 6, 7], params, on_event=(events := list[Event]()).append)
    result = handle.result()
    shown = repr(result)
    for name in ("text", "finish_reason", "usage", "timing", "token_ids", "seed", "kv"):
        assert f"{name}={getattr(result, name)!r}" in shown
    for name in ("account", "ledger", "ttft_ledger", "logprobs", "top_logprobs", "prompt_logprobs", "embedding"):
        assert getattr(result, name) is not None
        assert f"{name}=" not in shown
    assert len(shown) < 600 + len(repr(result.text)) + len(repr(result.token_ids))
    end = events[-1]
    assert isinstance(end, FinishEvent)
    assert "account=" not in repr(end)
    assert len(repr(end)) < 600 + len(repr(end.text))
