"""Values counted by size: the histograms of what comes with every token.

A Prometheus histogram of the library walks its buckets and takes a lock twice per value; here one value is one search
and two additions. Lives on one thread.
"""

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client.core import HistogramMetricFamily


class Tally:
    """How many values lie up to each of `bounds` and beyond the last, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float, *, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def tell(self, family: HistogramMetricFamily, labels: Sequence[str] = ()) -> None:
        """Add it to a family, each bucket with all smaller values."""
        below, buckets = 0, []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            below += count
            buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), below))
        family.add_metric(labels, buckets=buckets, sum_value=self._sum)
