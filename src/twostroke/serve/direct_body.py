"""A shortcut for the pieces of a streamed body: from the event that brings a token to its connection in one call.

Found by a stream in the state of its request, where the connection offers it; the way through the application is for
everything else, and for a connection that does not take more at once.
"""

from collections.abc import Mapping
from typing import Any, Protocol

DIRECT_BODY = "direct_body"


class DirectBody(Protocol):
    @property
    def is_open(self) -> bool:
        """Whether the body has begun, goes on, and the connection takes more of it without waiting."""

    def write(self, data: bytes) -> None:
        """Send a piece; only while it is open."""


def direct_body_of(scope: Mapping[str, Any]) -> DirectBody | None:
    found: DirectBody | None = scope.get("state", {}).get(DIRECT_BODY)
    return found
