"""Numbers as people read them: durations in ms or s, bytes in decimal units, - where there is no value."""

ABSENT = "-"


def duration(seconds: float | None) -> str:
    """Three significant digits or so: 0.42 ms, 34.1 ms, 1.25 s."""
    if seconds is None:
        return ABSENT
    if abs(seconds) >= 0.99995:
        return f"{seconds:.2f} s"
    milliseconds = seconds * 1e3
    return f"{milliseconds:.1f} ms" if abs(milliseconds) >= 9.995 else f"{milliseconds:.2f} ms"


def rate(per_s: float | None) -> str:
    """One decimal below a thousand, none above."""
    if per_s is None:
        return ABSENT
    return f"{per_s:.1f}" if per_s < 999.95 else f"{per_s:.0f}"


def share(ratio: float | None) -> str:
    return ABSENT if ratio is None else f"{ratio * 100:.0f} %"


def size(num_bytes: int) -> str:
    """Decimal units, as disks and bandwidths are sold."""
    value = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{num_bytes} B" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"


def count(number: int, noun: str) -> str:
    """1 token, 2 tokens."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
