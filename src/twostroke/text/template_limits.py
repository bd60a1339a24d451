"""Limits on what a chat template may cost: work, output and the size of every string it builds.

One RenderBudget per rendering; its counts do not depend on the speed of the machine. Spent by the nodes
of template_counting, the operations of template_checks and the filters; it stops nothing by itself.
"""

from collections.abc import Iterator, Mapping, Sequence

from twostroke.errors import ChatTemplateError

MAX_WORK = 500_000  # a loop turn is 1, about a microsecond; a long conversation takes some ten thousand
MAX_CHARS = 4_000_000  # of the output and of any one string: about a million tokens
_CHARS_PER_WORK = 512  # building a string this long costs as much as a loop turn
BUDGET = "render budget"  # a variable name no template can spell


class RenderBudget:
    """What one rendering has spent."""

    def __init__(self) -> None:
        self._work = 0
        self._chars = 0

    def spend(self, work: int) -> None:
        self._work += work
        if self._work > MAX_WORK:
            raise ChatTemplateError(
                f"the chat template does more than {MAX_WORK} units of work (a loop turn is 1); "
                "it may not end, shorten its loops"
            )

    def emit(self, chars: int) -> None:
        """Count characters written, into the output or a captured block."""
        self._chars += chars
        self.check_size(self._chars, "output")
        self.spend(1 + chars // _CHARS_PER_WORK)

    def build(self, chars: int) -> None:
        """Ask leave to build a string or list of this size."""
        self.check_size(chars, "a string or list")
        self.spend(chars // _CHARS_PER_WORK)

    def weigh(self, value: object) -> None:
        """Pay for looking at a value whole; stops at the limit in values that repeat themselves."""
        if isinstance(value, str):
            self.spend(len(value) // _CHARS_PER_WORK)
        elif isinstance(value, Mapping | list | tuple):
            self.build(size_of(value))

    def counted(self, items: Iterator[object]) -> Iterator[object]:
        """The same items, each paid for when it is taken."""
        for item in items:
            self.spend(1)
            yield item

    @staticmethod
    def check_size(chars: int, what: str) -> None:
        if chars > MAX_CHARS:
            raise ChatTemplateError(f"the chat template builds {what} of more than {MAX_CHARS} characters")


def size_of(value: object) -> int:
    """Characters a value has when written, roughly; anything over the limit stops the count."""
    total = 0
    pending = [value]
    while pending and total <= MAX_CHARS:
        item = pending.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, Mapping):
            total += 8
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            total += 8
            pending += item
        else:
            total += 8
    return total


def joined_size(parts: Sequence[object]) -> int:
    """Characters of the parts written one after the other."""
    return sum(len(part) if isinstance(part, str) else size_of(part) for part in parts)
