"""Sizes of what an operation, method or filter of a template would build, asked for before it runs.

Every check raises ChatTemplateError or spends a RenderBudget. Used by template sandbox and filters.
"""

import re
from typing import Any

from twostroke.errors import ChatTemplateError
from twostroke.text.template_limits import RenderBudget, joined_size, size_of

MAX_NUMBER_BITS = 4096
MAX_ARGUMENT = 100_000  # width, indent, count given to a filter or method
_FIELD_WIDTH = 1000
_REFUSED_METHODS = frozenset(("format_map", "expandtabs", "translate", "encode"))
_PADDING_METHODS = frozenset(("center", "ljust", "rjust", "zfill"))
# A field of 1000 characters or more, or as wide as an argument says.
_WIDE_PERCENT = re.compile(r"%(\([^)]*\))?[-+ #0]*(\*|\d{4}|\d*\.(\*|\d{4}))")
_WIDE_BRACES = re.compile(r"\{[^{}]*(:[^{}]*\d{4}|\{)")


def check_operation(budget: RenderBudget, sign: str, left: Any, right: Any) -> None:
    """Size of `left sign right`."""
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
        check_percent(budget, left, right)


def check_percent(budget: RenderBudget, pattern: str, values: Any) -> None:
    """Size of `pattern % values`."""
    _check_fields(budget, pattern, pattern.count("%"), values, is_wide=_WIDE_PERCENT.search(pattern) is not None)


def _check_braces(budget: RenderBudget, pattern: str, values: Any) -> None:
    """Size of `pattern.format(values)`."""
    fields = pattern.replace("{{", "").replace("}}", "")
    _check_fields(budget, pattern, fields.count("{"), values, is_wide=_WIDE_BRACES.search(fields) is not None)


def _check_fields(budget: RenderBudget, pattern: str, num_fields: int, values: Any, *, is_wide: bool) -> None:
    if is_wide:
        raise ChatTemplateError(f"the chat template formats with a field of {_FIELD_WIDTH} characters or more")
    budget.build(len(pattern) + num_fields * (_FIELD_WIDTH + size_of(values)))


def check_method(budget: RenderBudget, owner: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Size of what the string method `name` of `owner` returns."""
    if name in _REFUSED_METHODS:
        raise ChatTemplateError(f"the chat template calls the string method {name!r}, which is not allowed")
    for value in (*args, *kwargs.values()):
        check_argument(value)
    budget.build(len(owner))
    if name in _PADDING_METHODS:
        budget.build(max((value for value in args if isinstance(value, int)), default=0))
    if name == "format":
        _check_braces(budget, owner, [*args, *kwargs.values()])
    elif name == "replace" and len(args) >= 2:
        check_replace(budget, owner, args[0], args[1])
    elif name == "join" and args:
        check_join(budget, args[0], owner)


def check_join(budget: RenderBudget, parts: list[Any], separator: object) -> None:
    """Size of parts with a separator between them."""
    budget.build(joined_size(parts) + len(str(separator)) * len(parts))


def check_replace(budget: RenderBudget, text: object, old: object, new: object) -> None:
    """Size of a text in which every `old` became `new`."""
    text, old, new = str(text), str(old), str(new)
    budget.build(len(text) + (text.count(old) * len(new)))


def check_argument(value: object) -> None:
    """Refuse widths and counts that only serve to fill memory."""
    if isinstance(value, int) and abs(value) > MAX_ARGUMENT:
        raise ChatTemplateError(f"the chat template passes {value:.3e} to a filter or method: limit {MAX_ARGUMENT}")
