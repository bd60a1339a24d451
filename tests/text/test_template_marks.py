"""Marks: what a template writes can be told from what a user typed, and is the same text to read."""

import jinja2
import pytest
from hypothesis import given, strategies as st

from twostroke.errors import ChatTemplateError
from twostroke.text.control_text import ControlText, ControlToken
from twostroke.text.template_marks import ConstantMarker, MarkedText, MarkTable, without_marks

LITERALS = ("<|im_start|>", "<|im_end|>", "<s>", "｜end▁｜")


def table(*literals: str) -> MarkTable:
    return MarkTable(ControlText(ControlToken(index, text) for index, text in enumerate(literals or LITERALS)))


@given(st.text(alphabet="<|im_startend>xs/｜▁"))
def test_marked_text_reads_as_before(text: str) -> None:
    marks = table()
    assert marks.unmark(marks.mark(text)) == text
    assert marks.unmark(marks.mark_all(text)) == text
    assert len(marks.mark(text)) == len(text)


@given(st.text(alphabet="<|im_startend>xs/｜▁"))
def test_plain_text_never_splits_into_control_ids(text: str) -> None:
    assert table().split(text) == ([text] if text else [])


def test_marked_literals_split_into_their_ids() -> None:
    marks = table()
    assert marks.split(marks.mark("a<s><|im_end|>b｜end▁｜")) == ["a", 2, 1, "b", 3]
    assert marks.split(marks.mark("a") + "<s>" + marks.mark("<s>") + "b") == ["a<s>", 2, "b"]


def test_parts_a_neighbour_completes_are_marked_at_both_ends() -> None:
    marks = table()
    assert marks.split(marks.mark("x<|im_") + marks.mark("end|>y")) == ["x", 1, "y"]
    assert marks.split(marks.mark("<") + marks.mark("s>")) == [2]
    assert marks.split(marks.mark("<|im_") + "end" + marks.mark("|>")) == ["<|im_end|>"]
    assert marks.split(marks.mark("<|im_") + "end|>") == ["<|im_end|>"]


def test_a_run_of_marks_that_spells_nothing_is_text_joined_with_its_neighbours() -> None:
    marks = table()
    assert marks.split("a" + marks.mark_all("<|im|>") + "b") == ["a<|im|>b"]
    assert marks.split(marks.mark_all("im<s>im")) == ["im", 2, "im"]


def test_outside_text_cannot_hold_marks() -> None:
    assert without_marks("a\ud800b\udfffc") == "a\ufffdb\ufffdc"
    assert without_marks("\U0010fffd é") == "\U0010fffd é"


def test_a_vocabulary_without_control_tokens_has_no_marks() -> None:
    marks = MarkTable(ControlText([]))
    assert marks.mark("<s>") == "<s>"
    assert marks.split("<s>") == ["<s>"]


def test_a_marked_string_compares_as_typed_and_is_written_marked() -> None:
    text = MarkedText("<s>", marked="M")
    assert text == "<s>"
    assert {"<s>": 1}[text] == 1
    assert text in ("a", "<s>")
    assert (str(text), f"{text}", text + "b", "a" + text, text * 2) == ("M", "M", "Mb", "aM", "MM")
    assert f"{text:>3}" == "  M"
    assert len(text) == 3


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("<s>", True),
        ("{{ '<s>' }}", True),
        ("{{ x ~ '<s>' }}", True),
        ("{% set x = '<s>' %}", True),
        ("{{ x if y else '<s>' }}", True),
        ("{{ f('<s>') }}", True),
        ("{{ x|default('<s>') }}", True),
        ("{{ ['<s>']|join }}", True),
        ("{{ {'a': '<s>'} }}", True),
        ("{{ x.replace('a', '<s>') }}", True),
        ("{{ x == '<s>' }}", False),
        ("{{ '<s>' in x }}", False),
        ("{% if x == '<s>' %}{% endif %}", False),
        ("{{ 1 if x == '<s>' else 2 }}", False),
        ("{{ x is eq('<s>') }}", False),
        ("{{ x.split('<s>') }}", False),
        ("{{ x.startswith('<s>') }}", False),
        ("{{ x['<s>'] }}", False),
        ("{{ {'<s>': 1} }}", False),
        ("{% for i in x if i != '<s>' %}{% endfor %}", False),
    ],
)
def test_constants_are_marked_where_they_may_be_written(source: str, written: bool) -> None:
    marks = table()
    parsed = jinja2.Environment().parse(source)
    ConstantMarker(marks).rewrite(parsed)
    constants = [node.value for node in parsed.find_all(jinja2.nodes.Const) if isinstance(node.value, str)]
    constants += [node.data for node in parsed.find_all(jinja2.nodes.TemplateData)]
    assert (marks.mark("<s>") in constants) is written
    assert ("<s>" in constants) is not written


def test_control_tokens_no_model_has_are_refused() -> None:
    """All beginnings of a literal are kept: a million letters would take all memory there is."""
    with pytest.raises(ChatTemplateError, match="a control token of 1000000 characters: limit 1000"):
        table("<s>", "x" * 1_000_000)
    letters = [chr(0x4E00 + index) for index in range(2048)]
    with pytest.raises(ChatTemplateError, match="spelt with 2048 different characters: limit 2047"):
        table(*letters)
    assert table(*letters[:2047]).split("a") == ["a"]
