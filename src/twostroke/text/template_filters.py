"""The filters chat templates may use: jinja2's own behind a guard, and those the transformers library adds.

Every filter pays a RenderBudget for its input; those that could build more than they are given are
checked first. The template sandbox installs them; it decides nothing else here.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context

from twostroke.errors import ChatTemplateError
from twostroke.text.template_checks import check_argument, check_join, check_percent, check_replace
from twostroke.text.template_limits import BUDGET, RenderBudget, joined_size, size_of

KEPT = (
    *("abs", "attr", "batch", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float"),
    *("format", "groupby", "indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min"),
    *("reject", "rejectattr", "replace", "reverse", "round", "safe", "select", "selectattr", "slice", "sort"),
    *("string", "title", "trim", "truncate", "unique", "upper", "wordcount"),
)
_PER_ITEM = frozenset(("sort", "dictsort", "unique", "groupby", "map", "select", "reject", "selectattr", "rejectattr"))
CASE_CHANGES = frozenset(("upper", "lower", "title", "capitalize", "casefold", "swapcase"))
_MAX_SEPARATOR = 16


def template_filters(known: Mapping[str, Any], *, unmark: Callable[[str], str]) -> dict[str, Any]:
    """Filters by name, made of jinja2's `known` ones; `unmark` turns a written string into the one typed."""
    filters = {name: _guarded(name, known[name]) for name in KEPT}
    filters |= {name: _unmarking(filters[name], unmark) for name in CASE_CHANGES & filters.keys()}
    return filters | {
        "count_work": _count_work,
        "count_fixed": _count_fixed,
        "count_output": _count_output,
        "joined": _joined,
        "compared": _compared(unmark),
        "tojson": _tojson,
        "sum": _sum,
    }


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that pays for its input and refuses huge widths and counts."""
    passed = getattr(function, "jinja_pass_arg", None)  # set by jinja2's pass_context and its sisters

    @pass_context
    def guarded(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget: RenderBudget = context[BUDGET]
        budget.spend(1)
        if isinstance(value, Iterator):
            value = budget.counted(value)
        if name == "join":
            value = list(value)
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
    if name == "replace":
        old, new, *_ = (*args, *(kwargs[key] for key in ("old", "new") if key in kwargs), "", "")
        check_replace(budget, value, old, new)
    elif name == "format":
        check_percent(budget, str(value), [*args, *kwargs.values()])
    elif name == "indent":
        width = args[0] if args else kwargs.get("width", 4)
        budget.build((str(value).count("\n") + 1) * (len(width) if isinstance(width, str) else int(width)))
    elif name == "join":
        check_join(budget, value, args[0] if args else kwargs.get("d", ""))


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
    indent: Any = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as the transformers library writes it for templates: no HTML escapes, letters as they are."""
    check_argument(indent)
    if isinstance(indent, str) or any(len(part) > _MAX_SEPARATOR for part in separators or ()):
        raise ChatTemplateError(f"tojson takes a number as indent and separators of up to {_MAX_SEPARATOR} characters")
    context[BUDGET].build(size_of(value) * (1 + (indent or 0)))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
