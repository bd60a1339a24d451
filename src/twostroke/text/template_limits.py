"""Limits on what a chat template may cost: work, output and the size of every string it builds.

Loops, macros and outputs are counted by nodes put into the parsed template, so a pure loop is stopped
too. The counts do not depend on the speed of the machine. Used by the template sandbox only.
"""

from collections.abc import Iterator, Mapping, Sequence

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from twostroke.errors import ChatTemplateError

MAX_WORK = 500_000  # a loop turn is 1, about a microsecond; a long conversation takes some ten thousand
MACRO_WORK = 10  # a macro call costs as much as ten loop turns
BLOCK_WORK = 50  # a block gets a context of its own
RECURSION_WORK = 20  # a turn of a recursive loop
MAX_CHARS = 4_000_000  # of the output and of any one string: about a million tokens
MAX_NUMBER_BITS = 4096
MAX_ARGUMENT = 100_000  # width, indent, count given to a filter or method
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


def check_argument(value: object) -> None:
    """Refuse widths and counts that only serve to fill memory."""
    if isinstance(value, int) and abs(value) > MAX_ARGUMENT:
        raise ChatTemplateError(f"the chat template passes {value:.3e} to a filter or method: limit {MAX_ARGUMENT}")


class LimitInserter(NodeTransformer):
    """Puts counting nodes into a parsed template."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        if node.test is not None:  # turns a loop's own filter skips are turns too
            node.test = nodes.And(_count("count_work", nodes.Const(1), node), node.test, lineno=node.lineno)
        node.body.insert(0, _work(RECURSION_WORK if node.recursive else 1, node))
        return node

    def visit_Macro(self, node: nodes.Macro | nodes.CallBlock | nodes.Block) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, _work(BLOCK_WORK if isinstance(node, nodes.Block) else MACRO_WORK, node))
        return node

    visit_CallBlock = visit_Block = visit_Macro

    def visit_Output(self, node: nodes.Output) -> list[nodes.Node]:
        self.generic_visit(node)
        fixed = sum(len(item.data) for item in node.nodes if isinstance(item, nodes.TemplateData))
        node.nodes = [
            item if isinstance(item, nodes.TemplateData) else _count("count_output", item, item) for item in node.nodes
        ]
        cost = nodes.ExprStmt(_count("count_fixed", nodes.Const(fixed), node), lineno=node.lineno)
        return [cost, node] if fixed else [node]

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _count("joined", nodes.List(node.nodes, lineno=node.lineno), node)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _compared(node.expr)
        for operand in node.ops:
            operand.expr = _compared(operand.expr)
        return node


def _compared(node: nodes.Expr) -> nodes.Expr:
    return node if isinstance(node, nodes.Const) else _count("compared", node, node)


def _count(name: str, value: nodes.Expr, at: nodes.Node) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=at.lineno)


def _work(amount: int, node: nodes.Node) -> nodes.Node:
    return nodes.ExprStmt(_count("count_work", nodes.Const(amount), node), lineno=node.lineno)


def joined_size(parts: Sequence[object]) -> int:
    """Characters of the parts written one after the other."""
    return sum(len(part) if isinstance(part, str) else size_of(part) for part in parts)
