"""The jinja2 environment chat templates run in: what real templates need, and nothing beyond.

Templates see only the values given to them; attributes that lead to Python's insides are refused by
jinja2's sandbox, costly operations by RenderBudget. Compiles templates for ChatTemplate.
"""

import logging
import operator
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, NoReturn

import jinja2
from jinja2 import meta, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from twostroke.errors import ChatTemplateError
from twostroke.text.template_checks import check_method, check_operation
from twostroke.text.template_counting import LimitInserter
from twostroke.text.template_filters import CASE_CHANGES, template_filters
from twostroke.text.template_limits import BUDGET, MAX_CHARS

MAX_TIME_PATTERN = 1000
_OTHER_FILES = {"Include": "include", "Import": "import", "FromImport": "from", "Extends": "extends"}


class TemplateRaisedError(ChatTemplateError):
    """The template itself refused the conversation; the message is its own."""


class GenerationTag(Extension):
    """`{% generation %}` marks what a model wrote, for training; here its body is simply rendered."""

    tags: ClassVar[set[str]] = {"generation"}  # type: ignore[misc]  # jinja2 wants a set, ruff wants it named a class fact

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=lineno)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """A jinja2 environment with limits; one per chat template."""

    intercepted_binops = frozenset(("+", "*", "%", "**", "//"))

    def __init__(self, *, now: Callable[[], datetime], unmark: Callable[[str], str]) -> None:
        """`now` answers strftime_now; `unmark` turns a written string into the one typed, for comparisons."""
        self._unmark = unmark
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])
        self.filters = template_filters(self.filters, unmark=unmark)
        self.globals = {
            "range": _range,
            "dict": dict,
            "namespace": self.globals["namespace"],
            "raise_exception": _raise_exception,
            "strftime_now": lambda pattern: now().strftime(_checked_pattern(pattern)),
        }

    def compiled(self, source: str, rewrite: Callable[[nodes.Template], None]) -> jinja2.Template:
        """The template, after `rewrite` has seen its parsed form. Raises jinja2's TemplateSyntaxError."""
        parsed = self.parse(source)
        for node_name, tag in _OTHER_FILES.items():
            found = parsed.find(getattr(nodes, node_name))
            if found is not None:
                raise jinja2.TemplateSyntaxError(
                    f"tag {tag!r} is not allowed: a chat template is one text", found.lineno
                )
        self._warn_of_unknown(parsed)
        rewrite(parsed)
        code = self.compile(LimitInserter().visit(parsed), filename="<template>")
        return self.template_class.from_code(self, code, self.make_globals(None))

    def variables(self, source: str) -> frozenset[str]:
        """Names the template reads and does not set itself, less those the sandbox gives it."""
        return frozenset(meta.find_undeclared_variables(self.parse(source))) - self.globals.keys()

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        """Refuse at once: jinja2 alone would let a template go on until it uses the value."""
        raise SecurityError(f"attribute {attribute!r} of a {type(obj).__name__} is out of a template's reach")

    def _warn_of_unknown(self, parsed: nodes.Template) -> None:
        """Filters and tests nobody knows fail at load, but inside an `if` jinja2 waits until they are reached."""
        for node in parsed.find_all((nodes.Filter, nodes.Test)):
            kind, known = ("filter", self.filters) if isinstance(node, nodes.Filter) else ("test", self.tests)
            if node.name not in known:
                logging.getLogger("twostroke").warning(
                    "the chat template, line %d: no %s %r; rendering fails where it is reached",
                    node.lineno,
                    kind,
                    node.name,
                )

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Size checks before the operation; the name `operator` is jinja2's."""
        check_operation(context[BUDGET], operator, left, right)
        return _OPERATIONS[operator](left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Calls from templates: methods of strings pay for what they may build."""
        method = getattr(obj, "__wrapped__", obj)  # jinja2 wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            if method.__name__ == "join" and args:
                args = (list(args[0]), *args[1:])
            check_method(context[BUDGET], owner, method.__name__, args, kwargs)
            if method.__name__ in CASE_CHANGES:
                obj = getattr(self._unmark(owner), method.__name__)
        return super().call(context, obj, *args, **kwargs)


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "*": operator.mul,
    "%": operator.mod,
    "**": operator.pow,
    "//": operator.floordiv,
}


def _checked_pattern(pattern: str) -> str:
    """The C library tries buffers of up to 256 times a pattern's length."""
    if len(pattern) > MAX_TIME_PATTERN:
        raise ChatTemplateError(
            f"the chat template gives strftime_now a pattern of {len(pattern)} characters: limit {MAX_TIME_PATTERN}"
        )
    return pattern


@pass_context
def _range(context: Context, *bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > MAX_CHARS:
        raise ChatTemplateError(f"the chat template asks for a range of {len(numbers):.3e} numbers")
    context[BUDGET].spend(len(numbers))
    return numbers


def _raise_exception(message: object) -> NoReturn:
    raise TemplateRaisedError(str(message))
