"""What an API brings to the routes it shares with others: how a body asks for answers, and how they are told.

Implemented for OpenAI's two routes and for Ollama's two; called by `Routes.answer`, which has places, ids, errors,
cancels and records in common for all of them.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol, TypeVar

from twostroke.core.event import Event
from twostroke.embedding import EmbeddingParams
from twostroke.params import SamplingParams
from twostroke.serve.answers import Answers
from twostroke.serve.direct_body import DirectBody
from twostroke.serve.model_registry import ModelRegistry
from twostroke.serve.served_model import ServedModel


class Wished(Protocol):
    """One HTTP request, understood. Without prompts there is nothing to answer."""

    @property
    def model(self) -> str:
        """The model's name as the client wrote it, one of those that are served."""

    @property
    def keep_alive_s(self) -> float | None:
        """How long the model stays loaded afterwards; None where nothing is said."""

    @property
    def prompts(self) -> Sequence[Any]: ...
    @property
    def params(self) -> SamplingParams | EmbeddingParams: ...
    @property
    def num_choices(self) -> int: ...
    @property
    def salt(self) -> str: ...
    @property
    def timeout_s(self) -> float | None: ...
    @property
    def is_stream(self) -> bool: ...
    @property
    def wants_ledger(self) -> bool:
        """Whether the reply says where the time went: it waits until that is known."""

    @property
    def prompt_field(self) -> str:
        """What the client called the prompt."""

    @property
    def structure_field(self) -> str:
        """What the client called the form of its answer."""


class WholeReply(Protocol):
    def take(self, index: int, event: Event) -> None:
        """Hear an event of the answers. Raises ApiError for an end that is no answer."""

    def whole(self) -> dict[str, Any]:
        """The reply, once every answer has finished."""


class ReplyStream(Protocol):
    def chunks(self, body: DirectBody | None = None) -> AsyncIterator[bytes]:
        """What goes over the wire; failures are told in it, never raised.

        What can be written to `body` at once is, and does not come.
        """


WishT = TypeVar("WishT", bound=Wished)


class AnswerApi(Protocol[WishT]):
    @property
    def id_prefix(self) -> str:
        """How ids of its requests begin."""

    @property
    def stream_type(self) -> str:
        """Content-Type of its streams."""

    def read(self, body: bytes, models: ModelRegistry) -> WishT:
        """Understand a body, before its model is loaded. Called beside the event loop. Raises ApiError."""

    def fitted(self, wish: WishT, model: ServedModel) -> WishT:
        """The wish with everything settled that takes a look at the prompt's tokens.

        Called beside the event loop. Raises ApiError, or what the model's door raises.
        """

    def whole(self, wish: WishT, answers: Answers, model: ServedModel) -> WholeReply: ...
    def stream(self, wish: WishT, answers: Answers, model: ServedModel) -> ReplyStream | None:
        """None of an API whose replies come whole: its wishes are for no stream."""
