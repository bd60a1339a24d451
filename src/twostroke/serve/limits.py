"""What one HTTP request may cost before the model sees it, and what a client may make the server hold."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """Limits of the server, each with its reason."""

    max_body_bytes: int = 4 * 2**20  # some times the longest context, as text or token ids: parsing stops the world
    body_timeout_s: float = 60.0  # a body sent byte by byte must not hold a connection for ever
    max_prompts: int = 64  # per request
    max_inputs: int = 1024  # texts to embed in one request: as many as may wait in an engine
    max_choices: int = 64  # `n`
    max_answers: int = 128  # prompts x choices: each becomes a sequence
    max_stop_ids: int = 256  # looked at for every token
    max_timeout_s: float = 86_400.0
    max_open_requests: int = 256  # running and queued; more are told to come back
    max_pending_events: int = 16_384  # a client that stops reading must not fill the memory
    keep_alive_s: float = 10.0  # a stream says something at least this often, so that proxies keep it open
    progress_s: float = 0.5  # between two looks at a prefill, where they were asked for
    max_kept_requests: int = 1000  # finished ones whose ledgers can be asked for
    max_kept_bytes: int = 8 * 2**20  # of their records: two to three KB each, and far more after a crowd
    drain_s: float = 30.0  # after SIGTERM running answers have this long to end
    stall_s: float = 60.0  # without a step while answers are owed: their clients are told
    answer_s: float = 10.0  # the engine tells its counts between two steps; later than this it stands still
