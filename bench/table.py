"""Markdown tables of saved comparisons, the floor we set ourselves beside each ratio.

    twostroke bench -m FOLDER/smollm2-q4_0.gguf --vs llama.cpp --json >> results.jsonl
    python bench/table.py results.jsonl

One table per peer, rows by file and cell; where a cell was measured more than once the latest counts. Files have the
names bench/make_models.py gives them. The last line is the headline: the lowest ratio over Q4_0, Q8_0 and Q4_K_M.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twostroke.measure.cell import Cell, Kind

NAMES = {
    "smollm2": "SmolLM2-135M Q4_1",
    "smollm2-q4_0": "SmolLM2-135M Q4_0",
    "smollm2-q8_0": "SmolLM2-135M Q8_0",
    "gemma3": "Gemma 3 270M",
    "llama-1b-q4_0": "1B shape Q4_0",
    "llama-1b-q4_k_m": "1B shape Q4_K_M",
    "llama-8b-q4_k_m": "8B shape Q4_K_M",
}
# (prefill, decode) at depth 0, by peer and file; None where there is no floor
FLOORS: dict[str, dict[str, tuple[float, float]]] = {
    "llama.cpp": {
        "smollm2": (10, 2.7),
        "smollm2-q4_0": (3, 2),
        "smollm2-q8_0": (5, 1.8),
        "gemma3": (4.5, 2),
        "llama-1b-q4_0": (2.5, 1.15),
        "llama-1b-q4_k_m": (2.5, 1.15),
        "llama-8b-q4_k_m": (2, 1.1),
    },
    "llama-bench": {  # of ik_llama.cpp
        "smollm2": (1.9, 1.6),
        "smollm2-q4_0": (1.8, 1.4),
        "smollm2-q8_0": (1.9, 1.15),
        "gemma3": (1.9, 1.0),
        "llama-1b-q4_0": (1.6, 1.1),
        "llama-1b-q4_k_m": (1.6, 1.1),
        "llama-8b-q4_k_m": (1.4, 1.0),
    },
    "openvino": {
        "smollm2": (1.25, 3.2),
        "smollm2-q4_0": (1.2, 3),
        "smollm2-q8_0": (1.2, 2.3),
        "llama-1b-q4_0": (1.2, 1.4),
    },
}
LONG_FLOORS = {  # cells with a floor of their own
    ("llama.cpp", "smollm2", Cell(Kind.PREFILL, prompt=2048)): 9,
    ("llama.cpp", "smollm2", Cell(Kind.DECODE, generate=128, depth=4096)): 3,
    ("openvino", "smollm2", Cell(Kind.PREFILL, prompt=2048)): 1.25,
}
REQUEST_FLOORS = {"llama.cpp": 3, "openvino": 2}  # 16 at once
HONEST = ("_0", "q4_k_m")  # ends of names: formats every peer has its fastest kernels for


@dataclass(frozen=True)
class Row:
    """One cell of one file beside one peer."""

    peer: str
    file: str
    cell: Cell
    rates: dict[str, Any]

    @property
    def floor(self) -> float | None:
        if self.cell.kind is Kind.REQUESTS:
            return REQUEST_FLOORS.get(self.peer)
        if self.cell.depth or self.cell.prompt > 512:
            return LONG_FLOORS.get((self.peer, self.file, self.cell))
        floors = FLOORS.get(self.peer, {}).get(self.file)
        return None if floors is None else floors[self.cell.kind is Kind.DECODE]


def main() -> None:
    parser = argparse.ArgumentParser(description="Tables of saved comparisons.")
    parser.add_argument("results", type=Path, help="objects of `twostroke bench --vs PEER --json`, one a line")
    rows = read(parser.parse_args().results)
    for peer in dict.fromkeys(row.peer for row in rows):
        print(f"| beside {peer} | | twostroke | {peer} | ratio | floor |", "| --- " * 6 + "|", sep="\n")
        for row in sorted((row for row in rows if row.peer == peer), key=lambda row: list(NAMES).index(row.file)):
            print(line_of(row))
        print()
    compared = [row for row in rows if row.file.endswith(HONEST) and row.rates["ratio"] is not None]
    if not compared:
        return
    lowest = min(compared, key=lambda row: row.rates["ratio"]["median"])
    print(f"Lowest: {lowest.rates['ratio']['median']:.2f} in {lowest.cell.label}, {NAMES[lowest.file]}, {lowest.peer}")


def read(path: Path) -> list[Row]:
    """Rows with a peer's rates, the latest of each cell."""
    rows: dict[tuple[str, str, Cell], Row] = {}
    for text in path.read_text().splitlines():
        report = json.loads(text)
        peer, file = report["engines"][1]["engine"], Path(report["model"]).stem
        for rates in report["cells"]:
            cell = Cell(**{**rates["cell"], "kind": Kind(rates["cell"]["kind"])})
            if rates["peer"] is not None:
                rows[peer, file, cell] = Row(peer, file, cell, rates)
    return list(rows.values())


def line_of(row: Row) -> str:
    ours, theirs = (spread_of(row.rates[side], digits=0) for side in ("twostroke", "peer"))
    ratio = "-" if row.rates["ratio"] is None else spread_of(row.rates["ratio"], digits=2)
    floor = "" if row.floor is None else f"{row.floor:g}"
    return f"| {NAMES[row.file]} | {row.cell.label} | {ours} | {theirs} | {ratio} | {floor} |"


def spread_of(spread: dict[str, float], *, digits: int) -> str:
    """Median, lowest and highest; one digit more below a hundred."""
    digits = digits if digits or spread["median"] >= 100 else 1
    return f"{spread['median']:.{digits}f} [{spread['lowest']:.{digits}f}, {spread['highest']:.{digits}f}]"


if __name__ == "__main__":
    main()
