"""The tree of errors: what catches what, and the facts an error carries beside its words."""

import inspect
import re
from pathlib import Path

import pytest

from twostroke import errors
from twostroke.errors import (
    CapacityError,
    ChatTemplateError,
    DownloadError,
    ModelFileError,
    ParamsError,
    PromptError,
    QueueFullError,
    RequestError,
    TermsError,
    TwostrokeError,
)

ALL = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]


def drawn_tree() -> dict[str, str]:
    """Each error and its parent as the module's own drawing has them."""
    parents: dict[str, str] = {}
    path = ["TwostrokeError"]
    for indent, name in re.findall(r"^    ([| ]*)[|`]- (\w+)", errors.__doc__ or "", re.MULTILINE):
        path[1 + len(indent) // 3 :] = [name]
        parents[name] = path[-2]
    return parents


def test_the_drawing_is_the_tree() -> None:
    assert drawn_tree() == {kind.__name__: kind.__mro__[1].__name__ for kind in ALL if kind is not TwostrokeError}
    assert TwostrokeError.__base__ is Exception


@pytest.mark.parametrize(
    ("kind", "caught_by"),
    [(PromptError, ParamsError), (QueueFullError, CapacityError), (TermsError, DownloadError)],
)
def test_who_asks_for_the_wider_kind_gets_the_narrower(kind: type, caught_by: type) -> None:
    assert issubclass(kind, caught_by)


def test_errors_of_different_causes_do_not_catch_each_other() -> None:
    for kind in (ParamsError, CapacityError, DownloadError, ModelFileError, ChatTemplateError, RequestError):
        assert [other for other in ALL if issubclass(kind, other)] == [kind, TwostrokeError]


def test_a_field_is_named_beside_the_message() -> None:
    assert ParamsError("x", field="top_p").field == "top_p"
    assert PromptError("x").field == "prompt"
    assert PromptError("x", field="messages").field == "messages"
    assert str(ParamsError("top_p is 2", field="top_p")) == "top_p is 2"


def test_a_damaged_file_is_named_in_front_of_its_problem() -> None:
    error = ModelFileError(Path("dir") / "a.gguf", "key x is missing")
    assert str(error) == "dir/a.gguf: key x is missing"
    assert (error.file, error.problem) == ("dir/a.gguf", "key x is missing")
