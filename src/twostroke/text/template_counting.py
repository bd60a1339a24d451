"""Puts counting nodes into a parsed template, so that a pure loop is stopped too.

The nodes call filters of template_filters, which spend a RenderBudget. Used by the template sandbox only.
"""

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

NODES_PER_WORK = 16  # parts of an expression or statement that take as long as a loop turn by itself
MACRO_WORK = 10  # a macro call costs as much as ten loop turns
BLOCK_WORK = 50  # a block gets a context of its own
RECURSION_WORK = 20  # a turn of a recursive loop


class LimitInserter(NodeTransformer):
    """Puts counting nodes into a parsed template."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        size = _size(node)
        self.generic_visit(node)
        if node.test is not None:  # turns a loop's own filter skips are turns too
            node.test = nodes.And(_count("count_work", nodes.Const(1 + size), node), node.test, lineno=node.lineno)
        node.body.insert(0, _work((RECURSION_WORK if node.recursive else 1) + size, node))
        return node

    def visit_Macro(self, node: nodes.Macro | nodes.CallBlock | nodes.Block) -> nodes.Node:
        size = _size(node)
        self.generic_visit(node)
        node.body.insert(0, _work((BLOCK_WORK if isinstance(node, nodes.Block) else MACRO_WORK) + size, node))
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


def _size(node: nodes.Node) -> int:
    """Work of one pass over a body by its length, loops inside it taken once."""
    return sum(1 for _ in node.find_all(nodes.Node)) // NODES_PER_WORK


def _compared(node: nodes.Expr) -> nodes.Expr:
    return node if isinstance(node, nodes.Const) else _count("compared", node, node)


def _count(name: str, value: nodes.Expr, at: nodes.Node) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=at.lineno)


def _work(amount: int, node: nodes.Node) -> nodes.Node:
    return nodes.ExprStmt(_count("count_work", nodes.Const(amount), node), lineno=node.lineno)
