"""Grammars over a vocabulary of bytes: what they allow, what they refuse, and rows whose grammar gives up."""

import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.sample.sampling_builders import make_request
from twostroke.core.step import DeadEnd
from twostroke.errors import ParamsError
from twostroke.sample.grammar import Grammar, GrammarCompiler, Words
from twostroke.sample.logprobs import best_logprobs, log_softmax
from twostroke.sample.sampler import NO_TOKEN, Sampler, SamplingRow
from twostroke.structure import MAX_CHOICES, MAX_SOURCE_BYTES, Structure, StructureKind

END = 256
VOCAB = 258  # bytes, the end token, and another control token
COMPILER = GrammarCompiler(
    Words(
        [*(bytes([byte]) for byte in range(256)), b"<end>", b"<pad>"],
        control_ids=[END, END + 1],
        end_ids=[END],
        encode=lambda text: list(text.encode()),
    )
)


def schema(value: Any) -> Structure:
    return Structure(kind=StructureKind.JSON_SCHEMA, source=json.dumps(value))


def regex(source: str) -> Structure:
    return Structure(kind=StructureKind.REGEX, source=source)


def allowed(grammar: Grammar) -> set[int]:
    mask = grammar.allowed()
    return {token_id for token_id in range(VOCAB) if mask[token_id // 8] >> token_id % 8 & 1}


def accepts(structure: Structure, text: str) -> bool:
    """Whether the whole text can be said and ended."""
    grammar = COMPILER.compile(structure)
    for byte in text.encode():
        if byte not in allowed(grammar):
            return False
        grammar.advance(byte)
    return END in allowed(grammar)


def say(structure: Structure, wish: Callable[[set[int]], int], *, most: int = 200) -> bytes:
    """The answer of a model that always takes `wish` of what is allowed; it must end by itself."""
    grammar, said = COMPILER.compile(structure), b""
    for _ in range(most):
        token_id = wish(allowed(grammar))
        if token_id == END:
            return said
        said += bytes([token_id])
        grammar.advance(token_id)
    raise AssertionError(f"no end after {most} tokens: {said!r}")


def refusal(structure: Structure) -> str:
    with pytest.raises(ParamsError) as caught:
        COMPILER.compile(structure)
    assert caught.value.field == "structure"
    return str(caught.value)


# What is allowed


def test_only_what_fits_is_allowed_and_the_end_only_where_it_may_be() -> None:
    grammar = COMPILER.compile(regex("ab?"))
    assert allowed(grammar) == {ord("a")}
    grammar.advance(ord("a"))
    assert allowed(grammar) == {ord("b"), END}
    grammar.advance(ord("b"))
    assert allowed(grammar) == {END}


def test_two_grammars_of_one_wish_know_nothing_of_each_other() -> None:
    first, second = (COMPILER.compile(regex("ab")) for _ in range(2))
    first.advance(ord("a"))
    assert (allowed(first), allowed(second)) == ({ord("b")}, {ord("a")})


@pytest.mark.parametrize(
    ("structure", "text", "fits"),
    [
        (schema({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}), '"abc"', True),
        (schema({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}), '"abcd"', False),
        (schema({"type": "string", "pattern": "^[a-z]+$", "minLength": 5}), '"abcd"', False),
        (schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}), '{"a": 1}', True),
        (schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}), "{}", False),
        (schema({"type": "integer", "minimum": 3, "maximum": 12}), "13", False),
        (schema({"type": "integer", "minimum": 3, "maximum": 12}), "12", True),
        (schema({"const": 'a"b\\'}), '"a\\"b\\\\"', True),
        (Structure(kind=StructureKind.JSON_OBJECT), '{"x": [1, {"y": null}]}', True),
        (Structure(kind=StructureKind.JSON_OBJECT), "[1]", False),
        (Structure(kind=StructureKind.CHOICE, choices=("yes", "no", 'q"\\\n')), 'q"\\\n', True),
        (Structure(kind=StructureKind.CHOICE, choices=("yes", "no")), "maybe", False),
        (Structure(kind=StructureKind.LARK, source='start: "a"+ "b"'), "aab", True),
    ],
)
def test_answers_fit_or_do_not(structure: Structure, text: str, fits: bool) -> None:
    assert accepts(structure, text) is fits


@pytest.mark.parametrize("word", ["日本", "größe", "🌶", 'q"uote\\', "", " ", "e\u0301"])
def test_words_of_an_enum_are_said_as_they_are(word: str) -> None:
    for wish in (schema({"enum": [word]}), schema({"const": word})):
        assert json.loads(say(wish, max)) == word
        assert accepts(wish, json.dumps(word, ensure_ascii=False))


@pytest.mark.parametrize(
    "pattern",
    ["[\\x00-\\u2e7f]", "[^\\u4e00-\\u9fff]", "\\U0001F600", "[\\U0001F600-\\U0001F64F]", "[\\u07ff-\\u0800]"],
)
def test_ranges_of_characters_are_those_of_python(pattern: str) -> None:
    rng = np.random.default_rng(3)
    borders = [0, 0x7F, 0x80, 0x7FF, 0x800, 0x2E7F, 0x2E80, 0x4E00, 0x9FFF, 0xFFFF, 0x10000, 0x1F600, 0x1F64F]
    points = [point for point in [*borders, *rng.integers(0, 0x110000, 60)] if not 0xD800 <= point < 0xE000]
    structure = regex(re.sub(r"\\(?:u|U000)([0-9a-fA-F]{4,5})", r"\\u{\1}", pattern))  # the library's spelling
    for point in points:
        assert accepts(structure, chr(point)) is bool(re.fullmatch(pattern, chr(point))), hex(point)


def test_a_model_that_would_print_blanks_for_ever_ends() -> None:
    def blank_if_possible(ids: set[int]) -> int:
        for byte in b" \n\t":
            if byte in ids:
                return byte
        return END if END in ids else min(ids & set(range(33, 127)))

    for structure in (
        schema(
            {
                "type": "object",
                "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}},
                "required": ["a"],
                "additionalProperties": False,
            }
        ),
        schema({"type": "array", "items": {"type": "boolean"}, "maxItems": 2}),
    ):
        said = say(structure, blank_if_possible, most=60)
        json.loads(said)
        assert max((len(run) for run in re.findall(rb"[ \n\t]+", said)), default=0) <= 2


def test_recursion_that_is_legal_works() -> None:
    tree = schema({"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}})
    assert accepts(tree, '{"children": [{"children": []}, {}]}')


# Tokenizers that write text otherwise than it stands in an answer

PIECES = [*(bytes([byte]) for byte in range(256)), b"<end>", b" ", b"name", '"ü"'.encode(), b'{"']


def blank_first(text: str) -> list[int]:
    return [257, *text.encode()]


def composed(text: str) -> list[int]:
    return list(unicodedata.normalize("NFC", text).encode())


def words_of(encode: Callable[[str], list[int]]) -> Words:
    return Words(PIECES, control_ids=[END], end_ids=[END], encode=encode)


@pytest.mark.parametrize("encode", [blank_first, composed])
@pytest.mark.parametrize("text", ["{", '{"name": 1}', "", " a", "e\u0301", "ü"])
def test_forced_text_has_the_bytes_it_is_made_of(encode: Callable[[str], list[int]], text: str) -> None:
    words = words_of(encode)
    for each in (text, text.encode()):
        assert b"".join(PIECES[token_id] for token_id in words(each)) == text.encode()


def test_parts_of_characters_are_found_piece_by_piece() -> None:
    assert words_of(blank_first)("ü".encode()[:1]) == [0xC3]
    assert words_of(composed)(b'{"name\xff') == [260, 258, 255]


@pytest.mark.parametrize("encode", [blank_first, composed])
def test_an_answer_that_is_forced_can_be_said(encode: Callable[[str], list[int]]) -> None:
    compiler = GrammarCompiler(words_of(encode))
    for wish in (schema({"const": "e\u0301"}), schema({"type": "object", "required": ["name"]})):
        grammar, said = compiler.compile(wish), b""
        for _ in range(12):
            mask = grammar.allowed()
            ids = [token_id for token_id in range(len(PIECES)) if mask[token_id // 8] >> token_id % 8 & 1]
            if END in ids:
                break
            said += PIECES[ids[-1]]
            grammar.advance(ids[-1])
        assert b"\xc3\xa9" not in said  # composed
        assert not said.startswith(b" ")


# What is refused


@pytest.mark.parametrize(
    "value",
    [
        {"type": 5},
        {"properties": "x"},
        "string",
        [],
        None,
        {"properties": {"a": "b"}},
        {"not": {}},
        {"type": "strng"},
        {"enum": []},
        {"minimum": "a"},
        {"type": "array", "uniqueItems": True},
        {"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}},
        {"type": "string", "format": "date", "maxLength": 3},
        {"$ref": "#/nowhere"},
    ],
)
def test_a_schema_that_is_none_or_not_supported_is_refused(value: Any) -> None:
    assert "is refused: " in refusal(schema(value))


@pytest.mark.parametrize("source", ["(", "*", "[a", "a{2,1}", "(?=a)b", "(" * 50_000])
def test_a_broken_pattern_is_refused(source: str) -> None:
    assert len(refusal(regex(source))) < 400


@pytest.mark.parametrize("source", ["", "x: 'a'", "start: foo", "start: (", "not a grammar at all"])
def test_a_broken_grammar_is_refused(source: str) -> None:
    assert "structure of kind lark is refused" in refusal(Structure(kind=StructureKind.LARK, source=source))


def test_schemas_nested_beyond_reason_are_refused() -> None:
    source = '{"type":"array","items":' * 1000 + "{}" + "}" * 1000
    assert "recursion limit" in refusal(Structure(kind=StructureKind.JSON_SCHEMA, source=source))


def test_what_came_before_changes_nothing() -> None:
    wishes = [regex("ab"), regex("("), schema({"type": 5}), schema({"type": "integer"}), regex("[0-9]+")]

    def outcome(structure: Structure) -> object:
        try:
            return sorted(allowed(COMPILER.compile(structure)))
        except ParamsError as error:
            return str(error)

    alone = [outcome(structure) for structure in wishes]
    for order in np.random.default_rng(1).permutation(len(wishes) * 6) % len(wishes):
        assert outcome(wishes[order]) == alone[order]


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "regex"},
        {"kind": StructureKind.CHOICE},
        {"kind": StructureKind.REGEX, "source": "a", "choices": ("a",)},
        {"kind": StructureKind.CHOICE, "choices": ("",)},
        {"kind": StructureKind.CHOICE, "choices": (1,)},
        {"kind": StructureKind.CHOICE, "choices": ("x",) * (MAX_CHOICES + 1)},
        {"kind": StructureKind.REGEX, "source": "a" * (MAX_SOURCE_BYTES + 1)},
    ],
)
def test_wishes_of_the_wrong_form_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ParamsError, match="structure"):
        Structure(**fields)


# In the sampler


class Stubborn:
    """A grammar that gave up."""

    def allowed(self) -> bytes:
        raise ValueError("too many states")

    def advance(self, token_id: int) -> None:
        raise AssertionError("nothing was drawn")

    def behind(self, token_id: int) -> "Stubborn":
        raise AssertionError("nothing was drawn")

    def fork(self) -> "Stubborn":
        raise AssertionError("nothing was drawn")


def test_rows_with_a_grammar_draw_what_it_allows_beside_rows_without_one() -> None:
    sampler = Sampler(VOCAB)
    logits = np.zeros((2, VOCAB), np.float32)
    logits[:, ord("z")] = 9.0
    rows = [
        SamplingRow(0, sampler.start(make_request()), COMPILER.compile(regex("abc"))),
        SamplingRow(1, sampler.start(make_request())),
    ]
    said = []
    for _ in range(4):
        tokens = sampler.sample(logits, rows)
        for row, token in zip(rows, tokens, strict=True):
            row.grow(token.token_id)
        said.append([token.token_id for token in tokens])
    assert said == [[token_id, ord("z")] for token_id in (*b"abc", END)]


def test_a_grammar_that_gives_up_fails_its_row_alone_with_its_reason() -> None:
    sampler = Sampler(VOCAB)
    rows = [
        SamplingRow(0, sampler.start(make_request()), Stubborn()),
        SamplingRow(1, sampler.start(make_request())),
    ]
    first, second = sampler.sample(np.zeros((2, VOCAB), np.float32), rows)
    assert (first.token_id, second.token_id) == (NO_TOKEN, 0)
    assert first.error is not None
    assert first.error.startswith("its grammar gave up: too many states")
    assert isinstance(first.error, DeadEnd)


def test_a_grammar_that_breaks_its_limits_says_so_without_its_state() -> None:
    grammar = COMPILER.compile(regex("(a?){3000}a{3000}"))
    grammar.advance(ord("a"))
    with pytest.raises(ValueError, match="too many") as caught:
        grammar.allowed()
    assert "<state>" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_bans_that_leave_no_token_are_the_requests_own_and_broken_logits_are_not() -> None:
    sampler = Sampler(VOCAB)
    banned = sampler.start(replace(make_request(), bad_words=((ord("a"),),)))
    rows = [SamplingRow(0, banned, COMPILER.compile(regex("a"))), SamplingRow(1, sampler.start(make_request()))]
    logits = np.zeros((2, VOCAB), np.float32)
    logits[1, 5] = np.nan
    forbidden, broken = sampler.sample(logits, rows)
    assert isinstance(forbidden.error, DeadEnd)
    assert "all are forbidden" in forbidden.error
    assert broken.error is not None
    assert not isinstance(broken.error, DeadEnd)


def test_a_grammar_the_vocabulary_cannot_say_is_refused() -> None:
    tokens = [chr(0x4E00 + index).encode() for index in range(96)]
    compiler = GrammarCompiler(Words(tokens, control_ids=[], end_ids=[2], encode=lambda text: [0]))
    with pytest.raises(ParamsError, match="structure of kind regex is refused: NoExtension"):
        compiler.compile(regex("[a-z]"))


def test_forks_of_a_grammar_go_their_own_ways() -> None:
    whole = COMPILER.compile(regex("ab|ac|bd"))
    whole.advance(ord("a"))
    left, right = whole.fork(), whole.fork()
    left.advance(ord("b"))
    assert right.allowed() == whole.allowed() != left.allowed()
    right.advance(ord("c"))
    assert right.allowed() == left.allowed(), "only the end is left to both"


class Counted:
    """A place that counts its masks, those of its copies too."""

    def __init__(self, place: Any, counts: list[int]) -> None:
        self._place, self._counts = place, counts

    def mask(self) -> bytes:
        self._counts.append(1)
        mask: bytes = self._place.mask()
        return mask

    def advance(self, token_id: int) -> None:
        self._place.advance(token_id)

    def copy(self) -> "Counted":
        return Counted(self._place.copy(), self._counts)


@pytest.mark.parametrize("comes", ["abcd", "abxy", "xyzd", "abc"])
def test_what_was_asked_behind_tokens_is_known_once_they_come_and_forgotten_where_others_do(comes: str) -> None:
    source = regex("(abcd|abxy|xyzd|abc)")
    grammar, counts = COMPILER.compile(source), list[int]()
    grammar._place = Counted(grammar._place, counts)
    place, foreseen = grammar, 0
    grammar.allowed()
    for byte in b"abcd":
        place = place.behind(byte)
        place.allowed()
        foreseen += 1
    assert len(counts) == foreseen, "its own was asked for when it was compiled"
    fresh = COMPILER.compile(source)
    num_known = 1 + next((n for n, (a, b) in enumerate(zip(comes, "abcd", strict=False)) if a != b), len(comes))
    for byte in [*comes.encode(), None]:
        assert grammar.allowed() == fresh.allowed()
        if byte is not None:
            grammar.advance(byte)
            fresh.advance(byte)
    assert len(counts) == foreseen + (len(comes) + 1 - num_known)


def test_a_place_that_is_foreseen_again_is_the_same() -> None:
    grammar = COMPILER.compile(regex("ab|ac"))
    assert grammar.behind(ord("a")) is grammar.behind(ord("a"))
    behind = grammar.behind(ord("a"))
    assert allowed(behind) == {ord("b"), ord("c")}
    assert allowed(grammar) == {ord("a")}, "only looked at"
    fork = grammar.fork()
    fork.advance(ord("a"))
    fork.advance(ord("b"))
    assert allowed(behind) == {ord("b"), ord("c")}


def test_candidates_of_a_row_are_those_its_grammar_allows_with_raw_logarithms() -> None:
    sampler = Sampler(VOCAB)
    logits = np.random.default_rng(0).normal(size=(2, VOCAB)).astype(np.float32).round(1)
    logits[0, ord("z")] = 9.0
    logits[0, ord("c")] = -np.inf
    request = make_request()
    rows = [
        SamplingRow(0, sampler.start_ranking(request, num_candidates=4), COMPILER.compile(regex("[a-i]x")), 4),
        SamplingRow(1, sampler.start_ranking(request, num_candidates=4), None, 4),
    ]
    held, free = sampler.sample(logits, rows)
    known = log_softmax(logits[0])
    ids = [token_id for token_id in range(ord("a"), ord("i") + 1) if token_id != ord("c")]
    ranked = sorted(ids, key=lambda token_id: (-logits[0, token_id], token_id))[:4]
    assert [token.token_id for token in held.top_logprobs] == ranked
    assert [token.logprob for token in held.top_logprobs] == pytest.approx([known[each] for each in ranked], abs=1e-6)
    assert free.top_logprobs == best_logprobs(logits[1], 4)
