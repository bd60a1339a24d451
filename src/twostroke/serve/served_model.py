"""What the server asks of a loaded model: the part of LLM it knows, so that tests may stand in for it."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twostroke.chat.reader import AnswerReader
from twostroke.core.account import StepRecord
from twostroke.core.event import Event
from twostroke.core.peaks import Peaks
from twostroke.core.snapshot import Snapshot
from twostroke.embedding import EmbeddingParams
from twostroke.params import SamplingParams


class Asked(Protocol):
    """A request on its way."""

    @property
    def request_id(self) -> str: ...
    @property
    def num_prompt_tokens(self) -> int: ...
    @property
    def prompt_token_ids(self) -> Sequence[int]: ...
    def cancel(self) -> None: ...
    def new_reader(self) -> AnswerReader:
        """What reads the answer's text, from its beginning."""


class ServedModel(Protocol):
    @property
    def model_name(self) -> str: ...
    @property
    def default_params(self) -> SamplingParams: ...
    @property
    def context(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def kv_bytes(self) -> int: ...
    def now(self) -> float: ...
    def snapshot(self) -> Snapshot: ...
    def close(self) -> None: ...
    def use_of(self, steps: Sequence[StepRecord], peaks: Peaks) -> tuple[float, float]:
        """Shares of the peaks of arithmetic and of reads that steps reached."""

    def observe_steps(self, observer: Callable[[StepRecord], None]) -> None: ...
    def submit(
        self,
        prompt: Any,
        params: SamplingParams | EmbeddingParams | None = None,
        *,
        on_event: Callable[[Event], None] | None = None,
        arrival_s: float | None = None,
        request_id: str | None = None,
        choice_index: int = 0,
        salt: str = "",
        load_s: float = 0.0,
    ) -> Asked: ...
    def encode(self, prompt: Any, *, after: Sequence[int] = ()) -> list[int]: ...
    def decode(self, token_ids: Sequence[int]) -> str: ...
    def token_bytes(self, token_id: int) -> bytes | None:
        """Bytes a token adds to a text; None for a control token."""

    def token_text(self, token_id: int) -> str:
        """The token as people write it: its text, a control token's literal."""

    def progress(self, request_id: str) -> int | None:
        """Prompt tokens a running request has read; None once it has ended."""
