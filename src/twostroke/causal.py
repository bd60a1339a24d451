"""Which keys a query sees: the arithmetic of causal attention and its windows, shared by both cost models."""


def visible_pairs(start_pos: int, num_tokens: int, *, window: int | None) -> int:
    """Query-key pairs of a row: the sum of min(p + 1, window) over its positions p."""
    end = start_pos + num_tokens
    if window is None:
        return _triangle(end) - _triangle(start_pos)
    growing_end, growing_start = min(end, window), min(start_pos, window)
    return _triangle(growing_end) - _triangle(growing_start) + window * (end - growing_end - start_pos + growing_start)


def _triangle(n: int) -> int:
    return n * (n + 1) // 2
