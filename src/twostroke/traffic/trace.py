"""Traces of real and synthetic traffic, read from files; which format is told by the names of the columns.

    CSV    arrival_s,input_tokens,output_tokens          Azure's traces as seconds since the first request
           input_tokens,output_tokens                    lengths alone
           session_id,arrival_time,round_idx,...         sessions whose rounds follow each other (times in ms)
    JSONL  timestamp | arrival_s, input_length, output_length, hash_ids     Mooncake's (timestamp in ms)
           one client a line                             ServeGen's models, see client_model.py

All may be gzipped. Never cuts, drops or repairs a row: what is wrong is an error with its line.
"""

import csv
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twostroke.errors import ConfigError
from twostroke.traffic.client_model import draw_requests, is_client_model
from twostroke.traffic.workload import Item, Piece, Workload

SESSION_COLUMNS = {"session_id", "arrival_time", "round_idx", "prefix_len", "input_len", "output_len"}
LENGTH_COLUMNS = {"input_tokens", "output_tokens"}
HASHED_KEYS = {"input_length", "output_length", "hash_ids"}
MOONCAKE_BLOCK, SHORT_BLOCK = 512, 16  # tokens of a hash id: Mooncake's traces, and those in blocks of engines


def read_trace(path: Path, *, block_tokens: int | None = None, count: int | None = None, seed: int = 0) -> Workload:
    """The requests of a file, in its order. `block_tokens` is what one hash id stands for, else told by the lengths;
    `count` and `seed` say how many to draw from a model of clients.

    Raises ConfigError that says what is wrong in which line.
    """
    try:
        lines = _lines(path)
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise ConfigError(f"--trace {path} cannot be read: {error}") from None
    if not lines:
        raise ConfigError(f"--trace {path} is empty")
    if is_client_model(lines[0]):
        items = draw_requests(path, lines, count=count, seed=seed)
    elif lines[0].lstrip().startswith("{"):
        items = _hashed(path, lines, block_tokens)
    else:
        rows = list(csv.DictReader(lines))
        columns = set(rows[0]) if rows else set()
        if columns >= SESSION_COLUMNS:
            items = _sessions(path, rows)
        elif columns >= LENGTH_COLUMNS:
            items = _lengths(path, rows)
        else:
            known = "input_tokens and output_tokens, or those of sessions, or lines of JSON with hash_ids"
            raise ConfigError(
                f"--trace {path} has the columns {', '.join(sorted(columns)) or 'none'}: known are {known}"
            )
    return Workload(tuple(items), path.name, is_traced=True)


def _lines(path: Path) -> list[str]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    return [line for line in text.splitlines() if line.strip()]


class _Row:
    """Numbers of one row, checked; errors name the line."""

    def __init__(self, path: Path, number: int, values: Mapping[str, Any]) -> None:
        self._place = f"--trace {path}, line {number}"
        self._values = values

    def count(self, name: str) -> int:
        value = self.number(name)
        if value < 1 or value != int(value):
            raise ConfigError(f"{self._place}: {name} is {value:g}: it must be a whole number of at least 1")
        return int(value)

    def number(self, name: str) -> float:
        try:
            value = float(self._values[name])
        except (KeyError, TypeError, ValueError):
            raise ConfigError(f"{self._place}: {name} is {self._values.get(name)!r}: it must be a number") from None
        if not 0 <= value < float("inf"):
            raise ConfigError(f"{self._place}: {name} is {value:g}: it must be 0 or more")
        return value

    def wrong(self, problem: str) -> ConfigError:
        return ConfigError(f"{self._place}: {problem}")


def _lengths(path: Path, rows: list[dict[str, str]]) -> list[Item]:
    has_times, items = "arrival_s" in rows[0], []
    for place, values in enumerate(rows):
        row = _Row(path, place + 2, values)
        pieces = (Piece(f"{path.name} {place}", row.count("input_tokens")),)
        due_s = row.number("arrival_s") if has_times else None
        items.append(Item(pieces=pieces, output_tokens=row.count("output_tokens"), due_s=due_s))
    return items


def _hashed(path: Path, lines: list[str], block_tokens: int | None) -> list[Item]:
    """A prompt of blocks, the last one begun; equal ids stand for equal text."""
    rows: list[tuple[_Row, list[Any], Mapping[str, Any]]] = []
    for number, line in enumerate(lines, start=1):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            raise ConfigError(f"--trace {path}, line {number} is not JSON") from None
        if not isinstance(values, dict) or not values.keys() >= HASHED_KEYS or not isinstance(values["hash_ids"], list):
            raise ConfigError(f"--trace {path}, line {number}: it needs {', '.join(sorted(HASHED_KEYS))}")
        rows.append((_Row(path, number, values), values["hash_ids"], values))
    size = block_tokens or _block_size([(row.count("input_length"), len(ids)) for row, ids, _ in rows])
    items = []
    for place, (row, ids, values) in enumerate(rows):
        length = row.count("input_length")
        pieces = [Piece(f"{path.name} block {block}", size) for block in ids[: length // size]]
        if length % size:
            pieces.append(Piece(f"{path.name} rest {place}", length % size))
        if len(ids) not in (length // size, -(-length // size)):
            raise row.wrong(f"{len(ids)} hash_ids of {size} tokens do not make {length}: give --block-tokens")
        due_s = row.number("arrival_s") if "arrival_s" in values else row.number("timestamp") / 1000
        items.append(Item(pieces=tuple(pieces), output_tokens=row.count("output_length"), due_s=due_s))
    return items


def _block_size(sizes: list[tuple[int, int]]) -> int:
    """The one that makes every prompt's number of blocks: begun ones counted or not."""
    for size in (MOONCAKE_BLOCK, SHORT_BLOCK):
        if all(blocks in (length // size, -(-length // size)) for length, blocks in sizes):
            return size
    raise ConfigError("the hash_ids are neither of 512 nor of 16 tokens: give --block-tokens")


def _sessions(path: Path, rows: list[dict[str, str]]) -> list[Item]:
    """A round's prompt is all that was said before and its own input; it starts a pause after the one before it.

    Earlier answers stand there as random words of their length: they are known only once the server has given them.
    """
    items: list[Item] = []
    said: dict[str, list[Piece]] = {}
    last: dict[str, tuple[int, float]] = {}  # session -> its last round: place and pause after it
    for place, values in enumerate(rows):
        row, session = _Row(path, place + 2, values), values["session_id"]
        before = said.setdefault(session, [])
        known, prefix = sum(piece.num_tokens for piece in before), row.number("prefix_len")
        if known != prefix:
            raise row.wrong(f"prefix_len is {prefix:g}, the rounds before it have {known} tokens")
        before.append(Piece(f"{path.name} {session} in {len(before)}", row.count("input_len")))
        follows, pause_s = last.get(session, (None, 0.0))
        items.append(
            Item(
                pieces=tuple(before),
                output_tokens=row.count("output_len"),
                due_s=row.number("arrival_time") / 1000 if follows is None else None,
                follows=follows,
                pause_s=pause_s,
            )
        )
        before.append(Piece(f"{path.name} {session} out {len(before)}", row.count("output_len")))
        last[session] = (place, row.number("tool_wait_after_ms") / 1000)
    return items
