"""How many threads each phase runs on: reading weights may need fewer than arithmetic, and more would be in the way."""

from typing import NamedTuple


class PhaseThreads(NamedTuple):
    """As the dyno found best, or the same for both where somebody chose."""

    prefill: int
    decode: int

    @property
    def most(self) -> int:
        """So many have to be there."""
        return max(self)
