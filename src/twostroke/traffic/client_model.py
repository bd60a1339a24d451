"""Requests drawn from models of many clients (ServeGen's, one line of JSON each): rates and burstiness by bin of time,
lengths by quantiles.

Within a bin a client's arrivals are a renewal process that begins anew, gaps gamma or Weibull of its coefficient of
variation. A client without lengths takes those of one of the others, drawn by its rate.
"""

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from pathlib import Path
from typing import Any

from twostroke.errors import ConfigError
from twostroke.traffic.workload import Item, Piece

FORMAT = "servegen-compact-1"
SHAPES = (0.05, 50.0)  # of a Weibull distribution: beyond them no client of the traces lies
BISECTIONS = 60


@dataclass(frozen=True, slots=True)
class Client:
    """One client. Rates are per second by bin, variations those of the gaps, patterns G or W."""

    rates: Sequence[float]
    variations: Sequence[float]
    patterns: str
    input_quantiles: Sequence[float]  # empty where its lengths are unknown
    output_quantiles: Sequence[float]


def is_client_model(first_line: str) -> bool:
    """Whether a file that begins so holds models of clients."""
    return f'"{FORMAT}"' in first_line


def draw_requests(path: Path, lines: Sequence[str], *, count: int | None, seed: int) -> list[Item]:
    """The first `count` requests from the trace's beginning on. Raises ConfigError where the file is wrong."""
    if count is None:
        raise ConfigError(f"--trace {path} is a model of clients, which has no end: say how many with --requests")
    try:
        bin_s = float(json.loads(lines[0])["bin_s"])
        clients = [_client(json.loads(line)) for line in lines[1:]]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(f"--trace {path} is no model of clients: {type(error).__name__} {error}") from None
    known = [client for client in clients if client.input_quantiles]
    if not known or not 0 < bin_s < math.inf:
        raise ConfigError(
            f"--trace {path} is no model of clients: it needs bins of some seconds and a client's lengths"
        )
    rng = random.Random(seed)
    items: list[Item] = []
    start_s = 0.0
    for due_s, client in _arrivals(clients, bin_s, rng):
        source = client if client.input_quantiles else rng.choices(known, [sum(each.rates) for each in known])[0]
        prompt, output = (_length(quantiles, rng) for quantiles in (source.input_quantiles, source.output_quantiles))
        start_s = start_s or due_s
        pieces = (Piece(f"{path.name} {seed} {len(items)}", prompt),)
        items.append(Item(pieces=pieces, output_tokens=output, due_s=due_s - start_s))
        if len(items) == count:
            return items
    raise ConfigError(f"--trace {path} has {len(items)} requests: --requests of at most that fits")


def _client(values: dict[str, Any]) -> Client:
    rates = [rate / 1000 for rate in values["rate_mrps"]]
    if len(values["cv_pct"]) != len(rates) or len(values["pattern"]) != len(rates):
        raise ValueError("rates, variations and patterns differ in number")
    variations = [percent / 100 for percent in values["cv_pct"]]
    for rate, variation in zip(rates, variations, strict=True):
        if not 0 <= rate < math.inf or (rate and not 0 < variation < math.inf):
            raise ValueError("rates must be 0 or more, variations above 0, both finite")
    return Client(rates, variations, values["pattern"], values.get("input_q") or (), values.get("output_q") or ())


def _arrivals(clients: Sequence[Client], bin_s: float, rng: random.Random) -> Iterator[tuple[float, Client]]:
    """Of all clients in the order they come, bin by bin."""
    for place in range(max((len(client.rates) for client in clients), default=0)):
        start_s = place * bin_s
        streams = (_arrivals_in(client, place, start_s, start_s + bin_s, rng) for client in clients)
        yield from merge(*streams, key=lambda arrival: arrival[0])


def _arrivals_in(
    client: Client, place: int, start_s: float, end_s: float, rng: random.Random
) -> Iterator[tuple[float, Client]]:
    rate = client.rates[place] if place < len(client.rates) else 0.0
    if rate <= 0:
        return
    variation, mean_s, time_s = client.variations[place], 1 / rate, start_s
    shape = weibull_shape(variation) if client.patterns[place] == "W" else 1 / variation**2
    while True:
        if client.patterns[place] == "W":
            time_s += rng.weibullvariate(mean_s / math.gamma(1 + 1 / shape), shape)
        else:
            time_s += rng.gammavariate(shape, mean_s / shape)
        if time_s >= end_s:
            return
        yield time_s, client


def weibull_shape(variation: float) -> float:
    """The shape whose gaps have this coefficient of variation; it falls as the variation grows."""
    low, high = SHAPES
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        squared = math.exp(math.lgamma(1 + 2 / middle) - 2 * math.lgamma(1 + 1 / middle)) - 1
        if squared > variation**2:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _length(quantiles: Sequence[float], rng: random.Random) -> int:
    """The inverse of the distribution, linear between its quantiles; at least a token."""
    place = rng.random() * (len(quantiles) - 1)
    below = int(place)
    value = quantiles[below] + (place - below) * (quantiles[min(below + 1, len(quantiles) - 1)] - quantiles[below])
    return max(1, round(value))
