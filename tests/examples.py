"""How often a law is tried that wants its own number: all of it in `make test`, a share in `make unit`."""

from hypothesis import settings

USUAL = 100  # hypothesis tries a test that says nothing so often


def examples(count: int) -> settings:
    """`count` of them where the profile tries the usual number."""
    return settings(max_examples=tries(count))


def tries(count: int) -> int:
    """The same for a law tried with seeds of its own; called in the test, where the profile is known."""
    return max(count * settings().max_examples // USUAL, 5)
