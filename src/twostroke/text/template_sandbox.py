"""The jinja2 environment chat templates run in: what real templates need, and nothing beyond.

Templates see only the values given to them; attributes that lead to Python's insides are refused by
jinja2's sandbox, costly operations by RenderBudget. Compiles templates for ChatTemplate.
"""

import json
import logging
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from datetime import datetime
from typing import Any, ClassVar, NoReturn

import jinja2
from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from twostroke.errors import ChatTemplateError
from twostroke.text.template_limits import (
    BUDGET,
    MAX_CHARS,
    MAX_NUMBER_BITS,
    LimitInserter,
    RenderBudget,
    check_argument,
    joined_size,
    size_of,
)

_FILTERS = (
    *("abs", "attr", "batch", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float"),
    *("format", "groupby", "indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min"),
    *("reject", "rejectattr", "replace", "reverse", "round", "safe", "select", "selectattr", "slice", "sort"),
    *("string", "title", "trim", "truncate", "unique", "upper", "wordcount"),
)
_REFUSED_METHODS = frozenset(("format_map", "expandtabs", "translate", "encode"))
_PER_ITEM = frozenset(("sort", "dictsort", "unique", "groupby", "map", "select", "reject", "selectattr", "rejectattr"))
_CASE_CHANGES = frozenset(("upper", "lower", "title", "capitalize", "casefold", "swapcase"))
_WIDE_FIELD = re.compile(r"\d{4,}|\*|\{[^{}]*\{")  # a width of 1000 or more, or one taken from an argument
_FIELD_WIDTH = 1000
_CONTROL_NODES = {"Include": "include", "Import": "import", "FromImport": "from", "Extends": "extends"}


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
        self._keep_filters(self.filters)
        self.globals = {
            "range": _range,
            "dict": dict,
            "namespace": self.globals["namespace"],
            "raise_exception": _raise_exception,
            "strftime_now": lambda pattern: now().strftime(pattern),
        }

    def _keep_filters(self, known: dict[str, Any]) -> None:
        self.filters = {name: _guarded(name, known[name]) for name in _FILTERS}
        self.filters |= {name: _unmarking(self.filters[name], self._unmark) for name in _CASE_CHANGES & known.keys()}
        self.filters |= {
            "count_work": _count_work,
            "count_fixed": _count_fixed,
            "count_output": _count_output,
            "joined": _joined,
            "compared": _compared(self._unmark),
            "tojson": _tojson,
            "sum": _sum,
        }

    def compiled(self, source: str, rewrite: Callable[[nodes.Template], None]) -> jinja2.Template:
        """The template, after `rewrite` has seen its parsed form. Raises jinja2's TemplateSyntaxError."""
        parsed = self.parse(source)
        for node_name, tag in _CONTROL_NODES.items():
            found = parsed.find(getattr(nodes, node_name))
            if found is not None:
                raise jinja2.TemplateSyntaxError(
                    f"tag {tag!r} is not allowed: a chat template is one text", found.lineno
                )
        self._warn_of_unknown(parsed)
        rewrite(parsed)
        code = self.compile(LimitInserter().visit(parsed), filename="<template>")
        return self.template_class.from_code(self, code, self.make_globals(None))

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
        budget: RenderBudget = context[BUDGET]
        _check_operation(budget, operator, left, right)
        return _OPERATIONS[operator](left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Calls from templates: methods of strings pay for what they may build."""
        method = getattr(obj, "__wrapped__", obj)  # jinja2 wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            _check_method(context[BUDGET], owner, method.__name__, args, kwargs)
            if method.__name__ in _CASE_CHANGES:
                obj = getattr(self._unmark(owner), method.__name__)
        return super().call(context, obj, *args, **kwargs)


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "*": operator.mul,
    "%": operator.mod,
    "**": operator.pow,
    "//": operator.floordiv,
}


def _check_operation(budget: RenderBudget, sign: str, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * max(right, 1) if sign == "**" else left.bit_length() + right.bit_length()
        if bits > MAX_NUMBER_BITS:
            raise ChatTemplateError(f"the chat template computes a number of more than {MAX_NUMBER_BITS} bits")
    elif sign == "+" and isinstance(left, str | list | tuple):
        budget.build(len(left) + (len(right) if isinstance(right, str | list | tuple) else 0))
    elif sign == "*":
        sized, count = (left, right) if isinstance(right, int) else (right, left)
        if isinstance(sized, str | list | tuple) and isinstance(count, int):
            budget.emit(len(sized) * max(count, 0))  # repeated text counts as written at once
    elif sign == "%" and isinstance(left, str):
        _check_format(budget, left, left.count("%"), right)


def _check_format(budget: RenderBudget, pattern: str, num_fields: int, values: Any) -> None:
    if _WIDE_FIELD.search(pattern):
        raise ChatTemplateError(f"the chat template formats with a field of {_FIELD_WIDTH} characters or more")
    budget.build(len(pattern) + num_fields * (_FIELD_WIDTH + size_of(values)))


def _check_method(budget: RenderBudget, owner: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if name in _REFUSED_METHODS:
        raise ChatTemplateError(f"the chat template calls the string method {name!r}, which is not allowed")
    for value in (*args, *kwargs.values()):
        check_argument(value)
    budget.build(len(owner))
    if name == "format":
        _check_format(budget, owner, owner.count("{"), [*args, *kwargs.values()])
    elif name == "replace" and len(args) >= 2:
        _check_replace(budget, owner, args[0], args[1])
    elif name == "join" and args and isinstance(args[0], list | tuple):
        budget.build(joined_size(args[0]) + len(owner) * len(args[0]))


def _check_replace(budget: RenderBudget, text: object, old: object, new: object) -> None:
    text, old, new = str(text), str(old), str(new)
    budget.build(len(text) + (text.count(old) * len(new)))


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that pays for its input and refuses huge widths and counts."""
    passed = getattr(function, "jinja_pass_arg", None)  # set by jinja2's pass_context and its sisters

    @pass_context
    def guarded(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget: RenderBudget = context[BUDGET]
        budget.spend(1)
        if isinstance(value, Iterator):
            value = budget.counted(value)
        _pay_for_filter(budget, name, value, args, kwargs)
        first = {"context": context, "eval_context": context.eval_ctx, "environment": context.environment}
        return function(*([first[passed.name]] if passed else []), value, *args, **kwargs)

    return guarded


def _unmarking(function: Callable[..., Any], unmark: Callable[[str], str]) -> Callable[..., Any]:
    """A filter that changes letters: marks have no upper case, and the result is no control literal."""

    @pass_context
    def unmarking(context: Context, value: Any) -> Any:
        return function(context, unmark(str(value)) if isinstance(value, str) else value)

    return unmarking


def _pay_for_filter(
    budget: RenderBudget, name: str, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    if name not in ("default", "d"):
        for argument in (*args, *kwargs.values()):
            check_argument(argument)
    if isinstance(value, str):
        budget.build(len(value))
    elif isinstance(value, Sized):
        budget.spend(len(value) * (4 if name in _PER_ITEM else 1))
    if name in ("string", "escape", "e", "upper", "lower", "trim"):
        budget.weigh(value)
    if name == "replace" and len(args) >= 2:
        _check_replace(budget, value, args[0], args[1])
    elif name == "format":
        _check_format(budget, str(value), str(value).count("%"), [*args, *kwargs.values()])
    elif name == "indent":
        width = args[0] if args else kwargs.get("width", 4)
        budget.build((str(value).count("\n") + 1) * (len(width) if isinstance(width, str) else int(width)))
    elif name == "join" and isinstance(value, list | tuple):
        separator = args[0] if args else kwargs.get("d", "")
        budget.build(joined_size(value) + len(str(separator)) * len(value))


@pass_context
def _count_work(context: Context, amount: int) -> bool:
    context[BUDGET].spend(amount)
    return True


@pass_context
def _count_fixed(context: Context, chars: int) -> None:
    context[BUDGET].emit(chars)


@pass_context
def _count_output(context: Context, value: Any) -> Any:
    context[BUDGET].emit(len(value) if isinstance(value, str) else size_of(value))
    return value


@pass_context
def _joined(context: Context, parts: list[Any]) -> str:
    context[BUDGET].build(joined_size(parts))
    return "".join(map(str, parts))


def _compared(unmark: Callable[[str], str]) -> Callable[[Context, Any], Any]:
    @pass_context
    def compared(context: Context, value: Any) -> Any:
        context[BUDGET].weigh(value)
        is_marked = type(value) is str and not value.isascii()
        return unmark(value) if is_marked else value

    return compared


@pass_context
def _range(context: Context, *bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > MAX_CHARS:
        raise ChatTemplateError(f"the chat template asks for a range of {len(numbers):.3e} numbers")
    context[BUDGET].spend(len(numbers))
    return numbers


@pass_context
def _sum(context: Context, values: Iterable[Any], attribute: str | None = None, start: int = 0) -> Any:
    total: Any = start
    for value in values:
        context[BUDGET].spend(1)
        number = value if attribute is None else context.environment.getitem(value, attribute)
        if not isinstance(number, int | float):
            raise ChatTemplateError(f"the chat template sums a {type(number).__name__}: only numbers can be summed")
        total += number
    return total


@pass_context
def _tojson(
    context: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as the transformers library writes it for templates: no HTML escapes, letters as they are."""
    check_argument(indent)
    size = size_of(value)
    context[BUDGET].build(size * (1 + (indent or 0)))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: object) -> NoReturn:
    raise TemplateRaisedError(str(message))
