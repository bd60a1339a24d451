"""The routes that tell how the server stands: health, readiness, metrics, models. None loads a model."""

import asyncio
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from twostroke.core.clock import unix_time_s
from twostroke.core.snapshot import Snapshot
from twostroke.errors import TwostrokeError
from twostroke.serve.limits import LimitsConfig
from twostroke.serve.metrics import PhaseUse
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.model_slot import ModelSlot
from twostroke.serve.routes import Routes, stalled
from twostroke.serve.told import known_model
from twostroke.serve.watchdog import NUM_LOOKS

RECENT_S = 60.0  # steps older than this say nothing about now


class StateRoutes:
    def __init__(self, models: ModelRegistry, *, routes: Routes, limits: LimitsConfig) -> None:
        self._models = models
        self._routes = routes
        self._limits = limits
        self._started_s = unix_time_s()
        self._late_look: asyncio.Task[dict[ModelSlot, Snapshot | None]] | None = None  # at an engine that stands still

    async def health(self) -> Response:
        """Sums over the models that are loaded, and how each stands."""
        now = [each for each in (await self._snapshots()).values() if each is not None]
        return JSONResponse(
            {
                "status": "ok",
                "requests": {
                    "running": sum(each.num_running for each in now),
                    "waiting": sum(each.num_waiting for each in now),
                },
                "kv_blocks": {
                    "free": sum(each.blocks_free for each in now),
                    "cached": sum(each.blocks_cached for each in now),
                    "held": sum(each.blocks_held for each in now),
                    "total": sum(each.blocks_total for each in now),
                },
                "models": {slot.name: slot.state.value for slot in self._models.slots},
            }
        )

    async def metrics_text(self) -> Response:
        await self._routes.booked()
        now = await self._snapshots()
        for slot in now:
            slot.metrics.settle()
        use = await asyncio.to_thread(lambda: {slot: _phase_use(slot) for slot in now})
        models = [(slot.name, slot.metrics, snapshot, use[slot]) for slot, snapshot in now.items()]
        return Response(self._routes.metrics.text(models), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def _snapshots(self) -> dict[ModelSlot, Snapshot | None]:
        """The engines now. Raises ApiError when one does not answer; one thread at most waits for it then."""
        self._refuse_stalled()
        if self._late_look is not None and not self._late_look.done():
            raise stalled()
        look = asyncio.create_task(asyncio.to_thread(self._look))
        for _ in range(NUM_LOOKS):  # a process that was stopped and goes on has lost one of them, not all the time
            await asyncio.wait({look}, timeout=self._limits.answer_s / NUM_LOOKS)
            if look.done():
                return look.result()
        self._late_look = look
        raise stalled()

    def _look(self) -> dict[ModelSlot, Snapshot | None]:
        return {slot: _snapshot(slot) for slot in self._models.slots}

    async def ready(self) -> Response:
        """Whether a new request would be taken."""
        self._routes.refuse_while_draining()
        self._refuse_stalled()
        return JSONResponse({"status": "ready"})

    def _refuse_stalled(self) -> None:
        if any(slot.watchdog.is_stalled for slot in self._models.slots):
            raise stalled()

    async def models(self) -> Response:
        return JSONResponse({"object": "list", "data": await asyncio.to_thread(self._all_facts)})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        slot = await asyncio.to_thread(known_model, name, self._models)
        return JSONResponse(self._facts(name, slot))

    def _all_facts(self) -> list[dict[str, Any]]:
        found = [(name, self._models.find(name)) for name in self._models.names()]
        return [self._facts(name, slot) for name, slot in found if slot is not None]

    def _facts(self, name: str, slot: ModelSlot) -> dict[str, Any]:
        model = slot.model
        return {
            "id": name,
            "object": "model",
            "created": self._started_s,
            "owned_by": "twostroke",
            "max_model_len": None if model is None else model.context,  # what fits is known once it is loaded
            "state": slot.state.value,
        }


def _snapshot(slot: ModelSlot) -> Snapshot | None:
    model = slot.model
    if model is None:
        return None
    try:
        return model.snapshot()
    except TwostrokeError:  # it was unloaded this moment
        return None


def _phase_use(slot: ModelSlot) -> PhaseUse:
    """Of each kind of step that ran within the last minute, what it used of the machine."""
    model, peaks = slot.model, slot.peaks
    if model is None or peaks is None:
        return {}
    recent = slot.metrics.steps_since(model.now() - RECENT_S)
    return {kind: model.use_of(steps, peaks) for kind, steps in recent.items()}
