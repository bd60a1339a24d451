"""JSON schemas as grammars: each keyword says what it says, whatever is drawn is valid, hostile ones meet a limit."""

import contextlib
import json
import random
from typing import Any

import jsonschema
import pytest

from tests.sample.test_grammar import COMPILER, END, accepts, allowed, schema
from twostroke.errors import ParamsError
from twostroke.structure import Structure, StructureKind

# keyword, schema, values that fit, values that do not. Properties come in the schema's order.
KEYWORDS: list[tuple[str, dict[str, Any], list[Any], list[Any]]] = [
    ("type", {"type": "string"}, ["", "a", "ü"], [1, None, [], {}]),
    ("type", {"type": "integer"}, [0, -7, 12345], [1.5, "1", True]),
    ("type", {"type": "number"}, [0, -1.25, 1e30], ["1", None]),
    ("type", {"type": "boolean"}, [True, False], [0, "true", None]),
    ("type", {"type": "null"}, [None], [0, False, ""]),
    ("type", {"type": "array"}, [[], [1, "x", [None]]], [{}, "[]"]),
    ("type", {"type": "object"}, [{}, {"a": {"b": []}}], [[], "{}"]),
    ("type", {"type": ["string", "null"]}, ["a", None], [1, []]),
    ("enum", {"enum": ["red", 5, None, [1], {"a": 1}]}, ["red", 5, None, [1], {"a": 1}], ["blue", 6, [], {"a": 2}]),
    ("const", {"const": {"a": [1, "x"]}}, [{"a": [1, "x"]}], [{"a": [1]}, {}, "x"]),
    ("anyOf", {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]}, [1, "ab"], ["abc", None]),
    ("allOf", {"allOf": [{"type": "integer", "minimum": 2}, {"maximum": 4}]}, [2, 3, 4], [1, 5, "3"]),
    ("oneOf", {"oneOf": [{"type": "string"}, {"type": "integer"}]}, ["a", 1], [None, 1.5]),
    (
        "$ref",
        {"$defs": {"p": {"type": "integer", "minimum": 0}}, "type": "array", "items": {"$ref": "#/$defs/p"}},
        [[], [1, 2]],
        [[-1], ["1"]],
    ),
    (
        "$ref twice",
        {"$defs": {"s": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/s"}, "b": {"$ref": "#/$defs/s"}}},
        [{"a": "x", "b": "y"}],
        [{"a": 1}, {"b": None}],
    ),
    ("properties", {"type": "object", "properties": {"a": {"type": "null"}}}, [{}, {"a": None}], [{"a": 1}]),
    ("required", {"type": "object", "required": ["zz"]}, [{"zz": 1}], [{}, {"z": 1}]),
    (
        "additionalProperties",
        {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
        [{}, {"a": 1}],
        [{"b": 1}, {"a": 1, "b": 1}],
    ),
    (
        "additionalProperties",
        {"type": "object", "additionalProperties": {"type": "integer"}},
        [{}, {"x": 1}],
        [{"x": "1"}],
    ),
    (
        "patternProperties",
        {"type": "object", "patternProperties": {"^n": {"type": "integer"}}, "additionalProperties": False},
        [{"n1": 1}],
        [{"n1": "x"}, {"m": 1}],
    ),
    ("minProperties", {"type": "object", "minProperties": 1}, [{"a": 1}], [{}]),
    ("maxProperties", {"type": "object", "maxProperties": 1}, [{}, {"a": 1}], [{"a": 1, "b": 2}]),
    ("items", {"type": "array", "items": {"type": "boolean"}}, [[], [True]], [[1], [True, None]]),
    (
        "prefixItems",
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
        [[1, "a"]],
        [["a"], [1, "a", 2]],
    ),
    ("minItems", {"type": "array", "minItems": 2}, [[1, 2]], [[], [1]]),
    ("maxItems", {"type": "array", "maxItems": 1}, [[], [1]], [[1, 2]]),
    ("minLength", {"type": "string", "minLength": 2}, ["ab", "üü", "🌶🌶"], ["", "a", "🌶"]),
    ("maxLength", {"type": "string", "maxLength": 2}, ["", "üü", "🌶🌶"], ["abc", "🌶🌶🌶"]),
    ("pattern", {"type": "string", "pattern": "^a+$"}, ["a", "aaa"], ["", "b", "ab"]),
    ("pattern", {"type": "string", "pattern": "b"}, ["b", "abc"], ["", "ac"]),
    ("minimum", {"type": "integer", "minimum": -2}, [-2, 0, 99], [-3]),
    ("maximum", {"type": "integer", "maximum": 10}, [10, 9, -100], [11, 100]),
    ("exclusiveMinimum", {"type": "integer", "exclusiveMinimum": 0}, [1], [0, -1]),
    ("exclusiveMaximum", {"type": "number", "exclusiveMaximum": 1}, [0.5, -3], [1, 1.5]),
    ("multipleOf", {"type": "integer", "multipleOf": 3}, [0, 3, 99], [1, 100]),
    ("format", {"type": "string", "format": "date"}, ["2026-01-31"], ["2026-13-01", "x"]),
    ("format", {"type": "string", "format": "time"}, ["12:30:00Z"], ["25:00:00Z"]),
    ("format", {"type": "string", "format": "date-time"}, ["2026-01-31T12:30:00Z"], ["2026-01-31"]),
    ("format", {"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"], ["123"]),
    ("format", {"type": "string", "format": "ipv4"}, ["127.0.0.1"], ["256.1.1.1", "1.2.3"]),
    ("format", {"type": "string", "format": "email"}, ["a@b.example"], ["a", "@b"]),
]


@pytest.mark.parametrize(("keyword", "value", "fitting", "others"), KEYWORDS)
def test_a_keyword_says_what_the_standard_says(
    keyword: str, value: dict[str, Any], fitting: list[Any], others: list[Any]
) -> None:
    for each in fitting:
        assert accepts(schema(value), json.dumps(each, ensure_ascii=False)), each
    for each in others:
        assert not accepts(schema(value), json.dumps(each, ensure_ascii=False)), each


@pytest.mark.parametrize(
    "value",
    [
        {"type": "array", "contains": {"type": "integer"}},
        {"type": "array", "uniqueItems": True},
        {"not": {"type": "string"}},
        {"if": {"type": "string"}, "then": {"maxLength": 1}},
        {"dependentRequired": {"a": ["b"]}},
        {"dependentSchemas": {"a": {}}},
        {"propertyNames": {"maxLength": 2}},
        {"unevaluatedProperties": False},
        {"unevaluatedItems": False},
        {"$dynamicRef": "#node"},
        {"$ref": "http://elsewhere.example/schema"},
    ],
)
def test_a_keyword_that_is_not_kept_is_refused_never_ignored(value: Any) -> None:
    with pytest.raises(ParamsError, match="is refused"):
        COMPILER.compile(schema(value))


# Every pair of keywords that could be taken one without the other

BOUNDS: dict[str, dict[str, Any]] = {
    "string": {"minLength": 2, "maxLength": 3, "pattern": "^[ab]+$", "enum": ["a", "ab", "abab"], "format": "uuid"},
    "integer": {
        "minimum": 3,
        "maximum": 8,
        "exclusiveMinimum": 4,
        "exclusiveMaximum": 7,
        "multipleOf": 2,
        "enum": [2, 6],
    },
    "array": {"minItems": 1, "maxItems": 2, "items": {"type": "null"}, "prefixItems": [{"type": "integer"}]},
    "object": {
        "minProperties": 1,
        "maxProperties": 1,
        "required": ["a"],
        "properties": {"a": {"type": "null"}},
        "additionalProperties": False,
        "patternProperties": {"^b": {"type": "integer"}},
    },
}
SAMPLES: dict[str, list[Any]] = {
    "string": ["", "a", "ab", "ba", "aba", "abab", "abc", "x", "123e4567-e89b-12d3-a456-426614174000"],
    "integer": list(range(10)),
    "array": [[], [None], [1], [1, None], [None, None], [1, 2], [1, None, None], ["x"]],
    "object": [{}, {"a": None}, {"a": 1}, {"b": 1}, {"a": None, "b": 1}, {"a": None, "c": 1}, {"b": "x"}],
}


def test_of_two_keywords_neither_is_ignored() -> None:
    num_kept = 0
    for kind, bounds in BOUNDS.items():
        for first in bounds:
            for second in bounds:
                value = {"type": kind, first: bounds[first], second: bounds[second]}
                try:
                    COMPILER.compile(schema(value))
                except ParamsError:
                    continue  # said so, not ignored
                num_kept += 1
                judge = jsonschema.Draft202012Validator(value, format_checker=jsonschema.FormatChecker())
                for sample in SAMPLES[kind]:
                    if accepts(schema(value), json.dumps(sample)):
                        assert judge.is_valid(sample), (value, sample)
    assert num_kept > 60


# Random schemas

NAMES = ("a", "bc", "größe", "x y", 'q"', "n\n")


def random_schema(rng: random.Random, depth: int = 0) -> Any:
    kinds = ["string", "integer", "number", "boolean", "null", "enum"]
    if depth < 3:
        kinds += ["array", "object", "object", "anyOf"]
    kind = rng.choice(kinds)
    if kind == "enum":
        return {"enum": rng.sample([1, -2.5, "x", 'ü"\\', None, True, [1], {"k": 1}], rng.randint(1, 3))}
    if kind == "anyOf":
        return {"anyOf": [random_schema(rng, depth + 1) for _ in range(rng.randint(1, 3))]}
    value: dict[str, Any] = {"type": kind}
    low = rng.randint(-20, 20)
    if kind == "string":
        options: dict[str, Any] = {"minLength": rng.randint(0, 3), "maxLength": rng.randint(3, 8)}
        if rng.random() < 0.3:
            options = {"pattern": rng.choice(["^[a-z]{1,4}$", "^(foo|ba+r)$", "[0-9]", "^\\d{2}-\\w$"])}
    elif kind in ("integer", "number"):
        options = {"minimum": low, "maximum": low + rng.randint(0, 300)}
    elif kind == "array":
        least = rng.randint(0, 2)
        options = {"items": random_schema(rng, depth + 1), "minItems": least, "maxItems": least + rng.randint(0, 3)}
        value["items"] = options["items"]
    elif kind == "object":
        names = rng.sample(NAMES, rng.randint(0, 4))
        value["properties"] = {name: random_schema(rng, depth + 1) for name in names}
        options = {"required": rng.sample(names, rng.randint(0, len(names))), "additionalProperties": False}
    else:
        options = {}
    return value | {name: each for name, each in options.items() if rng.random() < 0.7}


def random_answer(structure: Structure, rng: random.Random, *, most: int = 4000) -> str:
    """Bytes drawn from what is allowed, with a liking for ends."""
    grammar, said = COMPILER.compile(structure), bytearray()
    for _ in range(most):
        ids = allowed(grammar)
        assert ids, bytes(said)
        closing = [byte for byte in b'"]}' if byte in ids]
        token_id = rng.choice(closing) if closing and rng.random() < 0.3 else rng.choice(sorted(ids))
        if END in ids and rng.random() < 0.5:
            token_id = END
        if token_id == END:
            return said.decode()
        said.append(token_id)
        grammar.advance(token_id)
    raise AssertionError(f"no end after {most} bytes: {bytes(said[-200:])!r}")


def test_a_thousand_random_schemas_give_valid_answers() -> None:
    rng = random.Random(7)
    num_compiled = 0
    for _ in range(1000):
        value = random_schema(rng)
        try:
            said = random_answer(schema(value), rng)
        except ParamsError:
            continue
        num_compiled += 1
        jsonschema.validate(json.loads(said), value, cls=jsonschema.Draft202012Validator)
    assert num_compiled > 950


# Hostile ones


def deep(value: str, *, levels: int) -> str:
    return '{"type":"array","items":' * levels + value + "}" * levels


HOSTILE = {
    "a ring": '{"$defs":{"A":{"$ref":"#/$defs/A"}},"$ref":"#/$defs/A"}',
    "a longer ring": '{"$defs":{"A":{"$ref":"#/$defs/B"},"B":{"$ref":"#/$defs/A"}},"$ref":"#/$defs/A"}',
    "deep": deep("{}", levels=1000),
    "deep pattern": json.dumps({"type": "string", "pattern": "(" * 30_000}),
    "many copies": json.dumps({"type": "string", "pattern": "((a{1,100}){1,100}){1,100}"}),
    "a long string of a class": json.dumps({"type": "string", "pattern": "^[\\p{L}]{1,20000}$"}),
    "powers of two": json.dumps(
        {"anyOf": [{"type": "string", "pattern": f"^(a|b)*a(a|b){{{number}}}$"} for number in range(40)]}
    ),
    "many words": json.dumps({"enum": [f"{number:x}" * 5 for number in range(3000)]}),
    "many properties": json.dumps({"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(1500)}}),
    "huge bounds": json.dumps({"type": "array", "minItems": 10**9, "items": {"type": "integer"}}),
    "huge lengths": json.dumps({"type": "string", "minLength": 10**9}),
    "huge numbers": json.dumps({"type": "integer", "minimum": -(10**300), "maximum": 10**300}),
    "a tree of conjunctions": json.dumps(
        {"allOf": [{"anyOf": [{"minLength": n}, {"maxLength": n}]} for n in range(40)]}
    ),
}


@pytest.mark.timeout(30)  # they take milliseconds; more would hold up a server's thread
@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_schema_is_refused_or_works_and_does_not_hang(source: str) -> None:
    with contextlib.suppress(ParamsError, ValueError):  # when compiled, or when a limit was met on the way
        grammar = COMPILER.compile(Structure(kind=StructureKind.JSON_SCHEMA, source=source))
        for _ in range(20):
            ids = allowed(grammar) - {END}
            if not ids:
                break
            grammar.advance(max(ids))
