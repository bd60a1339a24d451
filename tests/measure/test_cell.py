"""What a bench times: combinations of sizes, what each is called, and which tokens its rate counts."""

import pytest

from twostroke.errors import ConfigError
from twostroke.measure.cell import Cell, Kind, cells_of


def test_every_combination_is_a_cell_phase_by_phase() -> None:
    cells = cells_of(prompts=[512, 2048], generates=[128], requests=(128, 64), depths=[0, 4096], batches=[1, 16])
    assert [cell.label for cell in cells] == [
        "prefill 512",
        "prefill 2048",
        "decode 128",
        "prefill 512 at depth 4096",
        "prefill 2048 at depth 4096",
        "decode 128 at depth 4096",
        "request of 128 in, 64 out",
        "16 x prefill 512",
        "16 x prefill 2048",
        "16 x decode 128",
        "16 x prefill 512 at depth 4096",
        "16 x prefill 2048 at depth 4096",
        "16 x decode 128 at depth 4096",
        "16 x request of 128 in, 64 out",
    ]


def test_a_phase_of_no_tokens_is_no_cell() -> None:
    cells = cells_of(prompts=[0], generates=[4], requests=None, depths=[0], batches=[1])
    assert cells == [Cell(Kind.DECODE, generate=4)]


def test_nothing_to_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing would be timed"):
        cells_of(prompts=[0], generates=[0], requests=None, depths=[0], batches=[1])


@pytest.mark.parametrize(
    ("cell", "num_tokens"),
    [
        (Cell(Kind.PREFILL, prompt=512, depth=100, batch=2), 1024),
        (Cell(Kind.DECODE, generate=8, depth=100, batch=3), 24),
        (Cell(Kind.REQUESTS, prompt=128, generate=64, batch=16), 1024),  # what it wrote
    ],
)
def test_a_rate_counts_what_the_cell_is_about(cell: Cell, num_tokens: int) -> None:
    assert cell.num_tokens == num_tokens
