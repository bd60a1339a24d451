"""Values by size: every one in the bucket of the first bound that is not below it."""

from hypothesis import given, strategies as st
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import HistogramMetricFamily

from twostroke.serve.tally import Tally

BOUNDS = (0.5, 1.0, 4.0)


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, 3.0, 4.0, 5.0, 1e9])))
def test_it_tells_what_the_librarys_histogram_tells(values: list[float]) -> None:
    theirs = Histogram("seconds", "Text.", buckets=BOUNDS, registry=CollectorRegistry())
    ours = Tally(BOUNDS)
    for value in values:
        theirs.observe(value)
        ours.add(value)
    family = HistogramMetricFamily("seconds", "Text.")
    ours.tell(family)
    found = {(each.name, each.labels.get("le")): each.value for each in family.samples}
    expected = {
        (each.name, each.labels.get("le")): each.value
        for metric in theirs.collect()
        for each in metric.samples
        if not each.name.endswith("_created")
    }
    assert found == expected


def test_several_of_one_size_count_several_times() -> None:
    tally = Tally(BOUNDS)
    tally.add(0.75, times=3)
    family = HistogramMetricFamily("seconds", "Text.", labels=("kind",))
    tally.tell(family, ("one",))
    found = {(each.name, each.labels.get("le")): each.value for each in family.samples}
    assert found["seconds_bucket", "0.5"] == 0
    assert found["seconds_bucket", "1.0"] == found["seconds_count", None] == 3
    assert found["seconds_sum", None] == 2.25
    assert {each.labels["kind"] for each in family.samples} == {"one"}
