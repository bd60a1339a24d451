"""Settings of the scheduler, fixed when a model is loaded."""

from dataclasses import dataclass

from twostroke.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits of a step and of the queue; durations in seconds."""

    max_rows: int = 32  # running sequences, so rows of a step
    max_step_tokens: int = 512  # the engine's buffers
    max_chunk_tokens: int = 512  # prefill tokens of one row
    max_scored_tokens: int = 64  # rows of logits for prompts: a vocabulary of 262,144 makes them 67 MB
    max_waiting: int = 1024
    context_length: int | None = None  # prompt and answer; None: memory alone limits
    max_decode_stall_s: float = 0.050  # time prefill may add to a step in which someone decodes
    max_step_s: float = 0.080  # a step without decode: bounds how long a cancel waits; an eighth more to end a prompt
    min_prefill_tokens: int = 16  # go through whatever they cost: no prefill starves
    prefill_ageing_tokens_per_s: float = 100.0  # a waiting prompt gains on shorter ones at this rate
    priority_ageing_s: float = 30.0  # a class waits like one that is one step more urgent and arrived so much later
    enable_prefix_cache: bool = True
    max_preemptions: int = 2  # then a sequence is pinned
    output_quantile: float = 0.9  # admission keeps room for this quantile of outputs

    def __post_init__(self) -> None:
        for name in (
            "max_rows",
            "max_step_tokens",
            "max_chunk_tokens",
            "min_prefill_tokens",
            "max_waiting",
            "max_scored_tokens",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must be at least 1")
        for name in ("max_decode_stall_s", "max_step_s", "prefill_ageing_tokens_per_s", "priority_ageing_s"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must not be negative")
        if self.max_preemptions < 0:
            raise ConfigError(f"max_preemptions is {self.max_preemptions}: it must not be negative")
        if not 0 < self.output_quantile < 1:
            raise ConfigError(f"output_quantile is {self.output_quantile}: it must lie between 0 and 1")
        if self.max_rows >= self.max_step_tokens:
            raise ConfigError(
                f"max_rows is {self.max_rows} and max_step_tokens {self.max_step_tokens}: every row needs a token and "
                f"prefill at least one more; use max_rows of at most {self.max_step_tokens - 1}"
            )
