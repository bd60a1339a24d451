"""When models are loaded, who waits for whom, and when they go; over scripted models whose loads a test holds up."""

import asyncio
import math
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import pytest

from tests.serve.serve_builders import ScriptedLoader, ScriptedModel
from tests.serve.time_builders import StillLoop, run_on
from twostroke.errors import CapacityError, ConfigError, ModelFileError
from twostroke.serve.api_error import ApiError
from twostroke.serve.keep_alive import FOREVER_S
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.model_slot import ModelEntry, ModelSlot, ModelState, served_models

GB = 10**9


class Shelf:
    """A registry of models a, b and c, each of the size it is given, and nothing loaded."""

    def __init__(
        self,
        needs: Mapping[str, int] | None = None,
        *,
        free_bytes: int = 100 * GB,
        keep_alive_s: float = FOREVER_S,
        **options: Any,
    ) -> None:
        self.free_bytes = free_bytes
        self.models = {name: ScriptedModel(name=name) for name in ("a", "b", "c")}
        self.loader = ScriptedLoader(self.models, needs=needs)
        self.registry = ModelRegistry(
            [ModelEntry((name,), name) for name in self.models],
            loader=self.loader,
            free_bytes=lambda: self.free_bytes,
            keep_alive_s=keep_alive_s,
            **options,
        )

    def slot(self, name: str) -> ModelSlot:
        slot = self.registry.find(name)
        assert slot is not None
        return slot

    async def use(self, name: str, **options: Any) -> None:
        async with self.registry.using(self.slot(name), **options):
            pass

    @property
    def loaded(self) -> set[str]:
        return {slot.name for slot in self.registry.slots if slot.state is ModelState.LOADED}


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 10))


async def settle() -> None:
    """Let everything happen that can."""
    for _ in range(20):
        await asyncio.sleep(0.002)


async def refused(work: Awaitable[Any]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await work
    return caught.value


# Loading


def test_a_model_is_loaded_at_its_first_use_and_once_for_all_that_wait() -> None:
    async def work() -> None:
        shelf = Shelf()
        shelf.loader.gate.clear()
        asked = [asyncio.ensure_future(shelf.registry.take(shelf.slot("b"))) for _ in range(5)]
        await settle()
        assert shelf.slot("b").state is ModelState.LOADING
        shelf.loader.gate.set()
        uses = await asyncio.gather(*asked)
        assert [use.model for use in uses] == [shelf.models["b"]] * 5
        assert shelf.loader.loads == ["b"]
        assert all(use.load_s > 0 for use in uses)
        assert (await shelf.registry.take(shelf.slot("b"))).load_s == 0

    run(work)


def test_others_answer_while_one_is_loaded() -> None:
    async def work() -> None:
        shelf = Shelf()
        await shelf.use("a")
        shelf.loader.gate.clear()
        loading = asyncio.ensure_future(shelf.registry.take(shelf.slot("b")))
        await settle()
        await shelf.use("a")
        assert not loading.done()
        shelf.loader.gate.set()
        await loading

    run(work)


def test_two_models_are_loaded_one_after_another_so_that_neither_counts_on_the_others_memory() -> None:
    async def work() -> None:
        shelf = Shelf({"a": 3 * GB, "b": 4 * GB}, free_bytes=10 * GB)
        await asyncio.gather(shelf.use("a"), shelf.use("b"))
        assert shelf.loader.given_bytes == [10 * GB, 7 * GB]

    run(work)


def test_what_the_kv_of_loaded_models_may_grow_to_is_promised_memory() -> None:
    async def work() -> None:
        shelf = Shelf({"a": 3 * GB}, free_bytes=10 * GB)
        shelf.models["a"].kv_bytes = 2 * GB
        await shelf.use("a")
        await shelf.use("b")
        assert shelf.loader.given_bytes == [10 * GB, 5 * GB]
        assert shelf.slot("a").memory_bytes == 5 * GB
        shelf.free_bytes = GB  # another program took the rest
        await shelf.use("c")
        assert shelf.loader.given_bytes[-1] == GB

    run(work)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ModelFileError("/srv/models/b.gguf", "its header is cut"), "model_load_failed", "b.gguf: its header is cut"),
        (CapacityError("a context of 9 tokens needs 5 GB"), "insufficient_memory", "9 tokens needs 5 GB"),
        (OSError(5, "Input/output error", "/srv/models/b.gguf"), "model_load_failed", "Input/output error"),
        (RuntimeError("secret"), "model_load_failed", "internal error"),
    ],
)
def test_a_load_that_fails_fails_those_that_wait_and_the_next_request_tries_again(
    error: Exception, code: str, words: str
) -> None:
    async def work() -> None:
        shelf = Shelf()
        shelf.loader.failures = [error]
        shelf.loader.gate.clear()
        waiting = [asyncio.ensure_future(shelf.registry.take(shelf.slot("b"))) for _ in range(3)]
        await settle()
        shelf.loader.gate.set()
        for each in waiting:
            told = await refused(each)
            assert (told.status, told.code) == (503, code)
            assert words in str(told)
            assert "/srv" not in str(told)
            assert "secret" not in str(told)
        assert shelf.slot("b").state is ModelState.NOT_LOADED
        await shelf.use("b")
        assert shelf.loaded == {"b"}

    run(work)


def test_who_stops_waiting_leaves_the_load_to_others_and_holds_nothing() -> None:
    async def work() -> None:
        shelf = Shelf(keep_alive_s=0)
        shelf.loader.gate.clear()
        leaving = asyncio.ensure_future(shelf.registry.take(shelf.slot("b")))
        staying = asyncio.ensure_future(shelf.registry.take(shelf.slot("b")))
        await settle()
        leaving.cancel()
        shelf.loader.gate.set()
        use = await staying
        assert shelf.slot("b").num_uses == 1
        use.end()
        await settle()
        assert shelf.loaded == set()

    run(work)


def test_a_model_that_nobody_waits_for_any_more_goes_as_if_it_was_used() -> None:
    async def work() -> None:
        shelf = Shelf(keep_alive_s=0)
        shelf.loader.gate.clear()
        leaving = asyncio.ensure_future(shelf.registry.take(shelf.slot("b")))
        await settle()
        leaving.cancel()
        shelf.loader.gate.set()
        await settle()
        assert (shelf.loaded, shelf.models["b"].is_closed) == (set(), True)

    run(work)


# Going


def test_an_idle_model_goes_after_its_time_and_comes_back_at_the_next_use() -> None:
    loop = StillLoop()

    async def work() -> None:
        shelf = Shelf(keep_alive_s=30.0)
        await shelf.use("b")
        assert shelf.slot("b").expires_s is not None
        await loop.wait_until(20.0)
        await shelf.use("b")
        await loop.wait_until(49.0)
        assert shelf.loaded == {"b"}
        await loop.wait_until(50.0)
        assert (shelf.loaded, shelf.slot("b").expires_s) == (set(), None)
        await shelf.use("b")
        assert shelf.loader.loads == ["b", "b"]

    run_on(loop, work())


@pytest.mark.parametrize("keep_alive_s", [0.0, 30.0])
def test_the_first_model_goes_after_its_time_though_nobody_ever_used_it(keep_alive_s: float) -> None:
    loop = StillLoop()

    async def work() -> None:
        shelf.registry.begin_keep_alive()
        await loop.wait_until(max(keep_alive_s - 1.0, 0.0))
        assert (shelf.loaded == {"a"}) == (keep_alive_s > 0)
        await loop.wait_until(keep_alive_s)
        assert (shelf.loaded, shelf.models["a"].is_closed) == (set(), True)
        await shelf.use("a")
        assert shelf.loader.loads == ["a", "a"]

    shelf = Shelf(keep_alive_s=keep_alive_s)
    shelf.registry.load_first()
    run_on(loop, work())


def test_the_time_of_a_first_model_that_is_asked_for_at_once_begins_with_the_end_of_that_use() -> None:
    loop = StillLoop()

    async def work() -> None:
        use = await shelf.registry.take(shelf.slot("a"))
        shelf.registry.begin_keep_alive()
        await loop.wait_until(50.0)
        assert shelf.loaded == {"a"}
        use.end()
        await loop.wait_until(79.0)
        assert shelf.loaded == {"a"}
        await loop.wait_until(80.0)
        assert shelf.loaded == set()

    shelf = Shelf(keep_alive_s=30.0)
    shelf.registry.load_first()
    run_on(loop, work())


def test_a_first_model_that_another_ones_load_unloaded_is_not_unloaded_again() -> None:
    loop = StillLoop()

    async def work() -> None:
        shelf.registry.begin_keep_alive()
        await shelf.use("b", keep_alive_s=FOREVER_S)
        assert (shelf.loaded, shelf.slot("a").expires_s) == ({"b"}, None)
        await loop.wait_until(30.0)
        assert shelf.loaded == {"b"}

    shelf = Shelf({"a": 6 * GB, "b": 6 * GB}, free_bytes=10 * GB, keep_alive_s=30.0)
    shelf.registry.load_first()
    run_on(loop, work())


def test_a_model_in_use_does_not_go_and_its_time_begins_with_the_end_of_the_last_use() -> None:
    loop = StillLoop()

    async def work() -> None:
        shelf = Shelf(keep_alive_s=10.0)
        first, second = [await shelf.registry.take(shelf.slot("b")) for _ in range(2)]
        first.end()
        first.end()  # twice is once
        await loop.wait_until(50.0)
        assert (shelf.loaded, shelf.slot("b").num_uses, shelf.slot("b").expires_s) == ({"b"}, 1, None)
        second.end()
        await loop.wait_until(59.0)
        assert shelf.loaded == {"b"}
        await loop.wait_until(60.0)
        assert shelf.loaded == set()

    run_on(loop, work())


def test_a_request_may_say_how_long_and_the_next_load_begins_with_the_servers_time_again() -> None:
    async def work() -> None:
        shelf = Shelf()
        await shelf.use("b", keep_alive_s=0.0)
        await settle()
        assert shelf.loaded == set()
        await shelf.use("b", keep_alive_s=1000.0)
        await shelf.use("b")  # says nothing: what was said holds
        assert (shelf.slot("b").keep_alive_s, shelf.slot("b").expires_s is None) == (1000.0, False)
        await shelf.registry.unload(shelf.slot("b"))
        await shelf.use("b")
        assert shelf.slot("b").keep_alive_s == math.inf

    run(work)


def test_who_is_told_of_changes_hears_of_a_load_and_of_an_end_that_holds_the_model_no_more() -> None:
    told: list[str] = []
    models: list[weakref.ref[ScriptedModel]] = []
    shelf = Shelf(on_change=lambda: told.append("gone" if models[0]() is None else "there"))
    models.append(weakref.ref(shelf.models["b"]))

    async def come_and_go() -> None:
        (await shelf.registry.take(shelf.slot("b"))).end()
        shelf.models.pop("b")
        shelf.loader.models.pop("b")
        await shelf.registry.unload(shelf.slot("b"))

    asyncio.run(come_and_go())
    assert told == ["there", "gone"]


def test_unloading_waits_for_the_end_of_the_last_use() -> None:
    async def work() -> None:
        shelf = Shelf()
        use = await shelf.registry.take(shelf.slot("b"))
        await shelf.registry.unload(shelf.slot("b"))
        assert not shelf.models["b"].is_closed
        use.end()
        await settle()
        assert (shelf.loaded, shelf.models["b"].is_closed) == (set(), True)

    run(work)


# Memory


def test_a_load_that_does_not_fit_unloads_the_least_recently_used_and_no_more_than_it_must() -> None:
    async def work() -> None:
        shelf = Shelf({"a": 3 * GB, "b": 3 * GB, "c": 5 * GB}, free_bytes=10 * GB)
        await shelf.use("a")
        await shelf.use("b")
        await shelf.use("a")
        await shelf.use("c")
        assert shelf.loaded == {"a", "c"}
        assert shelf.models["b"].is_closed

    run(work)


def test_busy_models_are_never_unloaded_and_what_finds_no_room_is_told_the_arithmetic() -> None:
    async def work() -> None:
        shelf = Shelf({"a": 6 * GB, "b": 3 * GB, "c": 8 * GB}, free_bytes=10 * GB)
        use = await shelf.registry.take(shelf.slot("a"))
        await shelf.use("b")
        told = await refused(shelf.registry.take(shelf.slot("c")))
        assert (told.status, told.code) == (503, "insufficient_memory")
        assert str(told) == (
            "c needs weights of 8.00 GB + KV of 16 tokens, 0.00 GB = 8.00 GB; 4.00 GB are free with every idle model "
            "unloaded: ask again when a has answered"
        )
        assert shelf.loaded == {"a", "b"}  # none went in vain
        use.end()
        await shelf.use("c")
        assert shelf.loaded == {"c"}

    run(work)


def test_what_never_fits_is_told_what_would() -> None:
    async def work() -> None:
        shelf = Shelf({"b": 20 * GB}, free_bytes=10 * GB)
        await shelf.use("a")
        told = await refused(shelf.registry.take(shelf.slot("b")))
        assert str(told).endswith("10.00 GB are free: take a smaller model or file, a shorter --context or --kv int8")
        assert shelf.loaded == {"a"}

    run(work)


# Names


def test_the_first_model_is_loaded_before_there_is_a_loop_and_all_are_freed_at_the_end() -> None:
    shelf = Shelf({"a": 3 * GB}, free_bytes=10 * GB)
    shelf.registry.load_first()
    assert (shelf.loaded, shelf.loader.given_bytes) == ({"a"}, [10 * GB])
    shelf.registry.close()
    assert (shelf.loaded, shelf.models["a"].is_closed) == (set(), True)


def test_a_first_model_that_does_not_fit_is_an_error_with_the_arithmetic() -> None:
    with pytest.raises(CapacityError, match=r"a needs weights of 30\.00 GB .* 10\.00 GB are free"):
        Shelf({"a": 30 * GB}, free_bytes=10 * GB).registry.load_first()


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two models are called 'two'"):
        ModelRegistry(served_models(["one", "two"], aliases=["two"]), loader=ScriptedLoader({}), free_bytes=lambda: 0)
