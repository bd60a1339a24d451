"""The one thread: commands between steps, errors that come back, an end that answers everyone."""

import os
import threading
import time

import pytest

from tests.builders import Bench, Listener, answer_alone
from twostroke.core.event import Event, FinishEvent
from twostroke.core.request import Request
from twostroke.core.sequence import FinishReason
from twostroke.engine.worker import EXIT_WAIT_S, NUM_EXIT_LOOKS, Worker
from twostroke.errors import CapacityError, TwostrokeError
from twostroke.params import SamplingParams

WAIT_S = 20.0


class Waiter(Listener):
    def __init__(self) -> None:
        super().__init__()
        self.done = threading.Event()

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if isinstance(event, FinishEvent):
            self.done.set()


def ask(worker: Worker, prompt: bytes, *, max_tokens: int = 8, name: str = "r") -> Waiter:
    waiter = Waiter()
    request = Request(
        request_id=name,
        prompt_token_ids=tuple(prompt),
        params=SamplingParams(max_tokens=max_tokens),
        arrival_s=0.0,
        seed=7,
    )
    worker.call(lambda engine: engine.add(request, waiter)).result(WAIT_S)
    return waiter


def test_many_threads_ask_at_once_and_each_gets_its_own_answer() -> None:
    worker = Worker(Bench().engine)
    prompts = [bytes([65 + i] * (i + 1)) for i in range(6)]
    waiters: dict[int, Waiter] = {}
    threads = [
        threading.Thread(target=lambda i=i: waiters.update({i: ask(worker, prompts[i], name=f"r{i}")}))
        for i in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, waiter in waiters.items():
        assert waiter.done.wait(WAIT_S)
        assert waiter.token_ids == answer_alone(prompts[i])
    worker.close()


def test_an_error_of_a_command_comes_back_to_its_caller_alone() -> None:
    worker = Worker(Bench(num_blocks=4).engine)
    with pytest.raises(CapacityError):
        ask(worker, bytes(100))
    waiter = ask(worker, b"abc")
    assert waiter.done.wait(WAIT_S)
    worker.close()


def test_close_cancels_what_runs_and_refuses_what_comes() -> None:
    worker = Worker(Bench(num_blocks=4000).engine)
    waiter = ask(worker, b"abc", max_tokens=10_000)
    worker.close()
    worker.close()
    assert waiter.finish is not None
    assert waiter.finish.reason is FinishReason.CANCELLED
    with pytest.raises(TwostrokeError, match="closed"):
        worker.call(lambda engine: None)


def test_a_fault_of_the_engine_ends_its_requests_and_the_thread_lives(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    run = bench.reader.run
    calls: list[object] = []

    def broken(step: object) -> object:
        if not calls:
            calls.append(step)
            raise ZeroDivisionError("a bug")
        return run(step)  # type: ignore[arg-type]

    bench.reader.run = broken  # type: ignore[method-assign, assignment]
    worker = Worker(bench.engine)
    first = ask(worker, b"abc")
    assert first.done.wait(WAIT_S)
    assert first.finish is not None
    assert first.finish.reason is FinishReason.ERROR
    second = ask(worker, b"abc", name="r2")
    assert second.done.wait(WAIT_S)
    assert second.token_ids == answer_alone(b"abc")
    assert "a bug" in caplog.text
    worker.close()


def test_an_idle_worker_sleeps() -> None:
    worker = Worker(Bench().engine)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.1
    worker.close()


def test_a_command_that_would_wait_for_its_own_thread_is_refused() -> None:
    worker = Worker(Bench().engine)
    with pytest.raises(TwostrokeError, match="hand over to another thread"):
        worker.ask(lambda engine: worker.ask(lambda same: same.snapshot()))
    with pytest.raises(TwostrokeError, match="hand over to another thread"):
        worker.ask(lambda engine: worker.close())
    assert worker.ask(lambda engine: engine.has_work) is False
    worker.close()


def test_a_command_may_ask_for_another_without_waiting() -> None:
    worker = Worker(Bench().engine)
    later = worker.ask(lambda engine: worker.call(lambda same: same is engine))
    assert later.result(WAIT_S) is True
    worker.close()


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), ValueError("no")])
def test_whatever_a_command_raises_is_its_callers(error: BaseException) -> None:
    worker = Worker(Bench().engine)

    def fail(engine: object) -> None:
        raise error

    with pytest.raises(type(error)):
        worker.ask(fail)
    assert worker.ask(lambda engine: 1) == 1
    worker.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_a_thread_that_died(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    worker = Worker(bench.engine)
    entered, leave = threading.Event(), threading.Event()

    def block(engine: object) -> None:
        entered.set()
        leave.wait(WAIT_S)

    def die() -> bool:
        raise SystemExit

    monkeypatch.setattr(bench.engine, "step", die)
    worker.call(block)
    assert entered.wait(WAIT_S)
    left = worker.call(lambda engine: 1)
    leave.set()
    with pytest.raises(TwostrokeError, match="closed"):
        left.result(WAIT_S)
    with pytest.raises(TwostrokeError, match="closed"):
        worker.call(lambda engine: 2)
    worker.close()


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_told_that_it_has_no_engine_and_can_close() -> None:
    worker = Worker(Bench().engine)
    assert worker.ask(lambda engine: engine.has_work) is False
    child = os.fork()
    if child == 0:
        code = 1
        try:
            worker.call(lambda engine: None)
        except TwostrokeError as error:
            code = 0 if "after the fork" in str(error) else 2
        worker.close()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert worker.ask(lambda engine: engine.has_work) is False
    worker.close()


@pytest.mark.parametrize("num_waits", [1, 7, 1000])
def test_at_the_end_of_the_program_a_stopped_process_loses_one_short_wait(
    monkeypatch: pytest.MonkeyPatch, num_waits: int
) -> None:
    """However long a wait took by the clock, the thread gets its share of them; one that never ends is left."""
    worker, waits = Worker(Bench().engine), list[float]()

    class Slow:
        def join(self, timeout_s: float) -> None:
            waits.append(timeout_s)

        def is_alive(self) -> bool:
            return len(waits) < num_waits

    with monkeypatch.context() as patched:
        patched.setattr(worker, "_thread", Slow())
        worker._end_with_program()
    assert len(waits) == min(num_waits, NUM_EXIT_LOOKS)
    assert max(waits) * NUM_EXIT_LOOKS == pytest.approx(EXIT_WAIT_S)
    worker.close()
