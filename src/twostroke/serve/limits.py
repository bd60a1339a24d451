"""What one HTTP request may cost before the model sees it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """Limits of the server, each with its reason."""

    max_body_bytes: int = 16 * 2**20  # ten times the longest context written as token ids
    body_timeout_s: float = 60.0  # a body sent byte by byte must not hold a connection for ever
    max_prompts: int = 64  # per request; each becomes a sequence
    max_pending_events: int = 16_384  # a client that stops reading must not fill the memory
