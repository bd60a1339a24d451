"""Settings of the cache, fixed when a model is loaded."""

from dataclasses import dataclass

from twostroke.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """Sizes per KV group, and what separates this cache's keys from those of any other.

    `windows[g]` is the sliding window of group g (a query at p sees keys in (p - window, p]), None for
    full attention. `fingerprint` names model, ISA and arithmetic version.
    """

    block_size: int
    num_blocks: tuple[int, ...]
    windows: tuple[int | None, ...]
    fingerprint: str = ""
    precision: str = "f32"
    adapter: str = ""

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise ConfigError(f"block_size is {self.block_size}: it must be at least 1")
        if not self.num_blocks or len(self.num_blocks) != len(self.windows):
            raise ConfigError(
                f"num_blocks has {len(self.num_blocks)} and windows {len(self.windows)} KV groups: "
                "both need one entry per group, at least one"
            )
        for group, (num_blocks, window) in enumerate(zip(self.num_blocks, self.windows, strict=True)):
            if num_blocks < 1:
                raise ConfigError(f"KV group {group} has {num_blocks} blocks: it needs at least 1")
            if window is not None and window < 1:
                raise ConfigError(f"KV group {group} has a window of {window}: it must be at least 1")
