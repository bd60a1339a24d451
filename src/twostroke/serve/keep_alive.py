"""How long a model stays loaded that nobody uses, as Ollama writes it: seconds, or a duration such as 5m or 1h30m.

0 lets it go at once, a negative one never, nor one of more than a century: its end would be no date a clock can tell.
"""

import math
import re

FOREVER_S = math.inf
LONGEST_S = 100 * 365 * 86400.0
UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
PART = r"(\d+(?:\.\d+)?)(h|ms|m|s|us|µs|ns)"
DURATION = re.compile(rf"([+-]?)((?:{PART})+)", re.ASCII)
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?", re.ASCII)
MAX_CHARACTERS = 64


def read_keep_alive(value: object) -> float:
    """Seconds, infinity for ever. Raises ValueError that says what may be written."""
    if isinstance(value, str) and len(value) <= MAX_CHARACTERS:
        seconds = _duration(value)
    elif isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value):
        seconds = float(value)
    else:
        seconds = None
    if seconds is None:
        raise ValueError('it must be seconds or a duration such as "5m" or "1h30m"; 0 is at once, negative never')
    return seconds if 0 <= seconds <= LONGEST_S else FOREVER_S


def _duration(text: str) -> float | None:
    if NUMBER.fullmatch(text):
        return float(text)
    whole = DURATION.fullmatch(text)
    if whole is None:
        return None
    seconds = sum(float(number) * UNIT_S[unit] for number, unit in re.findall(PART, whole[2]))
    return -seconds if whole[1] == "-" else seconds
