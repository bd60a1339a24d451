"""Grammars of answers, through llguidance: compiled on the caller's thread, then one mask of allowed tokens per step.

`GrammarCompiler` is made once per loaded model; a `Grammar` follows one answer. What llguidance does not support is an
error, never an unconstrained answer. Patterns that it has found good have masks of our own where `pattern.py` reads
them: the same, sooner. Never looks at logits.
"""

import json
from collections.abc import Callable, Collection, Sequence
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Protocol, Self, cast

import llguidance

from twostroke import _native
from twostroke.errors import ParamsError
from twostroke.sample.named_characters import named_characters
from twostroke.sample.pattern import PatternCompiler
from twostroke.structure import JSON_OPTIONS, Structure, StructureKind

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions  # a type alone

LIMITS = llguidance.LLParserLimits(
    max_grammar_size=200_000, initial_lexer_fuel=500_000, step_lexer_fuel=100_000, max_lexer_states=50_000
)
MAX_PROBLEM = 200  # characters of what the compiler says
MAX_PATTERNS = 4  # that are kept with their masks: some megabytes each, at most 16 and a mask


class Words:
    """A vocabulary as llguidance wants to see it."""

    def __init__(
        self,
        tokens: Sequence[bytes],
        *,
        control_ids: Collection[int],
        end_ids: Collection[int],
        encode: Callable[[str], list[int]],
    ) -> None:
        self.eos_token_id = min(end_ids)
        self.bos_token_id = None
        self.tokens = tokens
        self.special_token_ids = sorted({*control_ids, *end_ids})
        self.end_ids = sorted(end_ids)
        self._encode = encode

    def __call__(self, text: bytes | str) -> list[int]:
        """Tokens of a text the grammar wants to the letter: not with a space the encoder puts before words."""
        wanted = text if isinstance(text, bytes) else text.encode()
        ids = self._encode(wanted.decode("utf-8", "replace"))
        return ids if b"".join(self.tokens[token_id] for token_id in ids) == wanted else self._longest(wanted)

    def _longest(self, text: bytes) -> list[int]:
        """The longest token that fits, again and again."""
        ids, start = [], 0
        while start < len(text):
            ends = range(min(len(text), start + self._longest_size), start, -1)
            end = next((end for end in ends if text[start:end] in self._ids), start + 1)
            if text[start:end] in self._ids:  # a byte without a token cannot be said
                ids.append(self._ids[text[start:end]])
            start = end
        return ids

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        special = set(self.special_token_ids)
        return {token: token_id for token_id, token in enumerate(self.tokens) if token and token_id not in special}

    @cached_property
    def _longest_size(self) -> int:
        return max(map(len, self._ids), default=0)


class GrammarCompiler:
    """Turns wishes into grammars over one vocabulary."""

    def __init__(self, words: Words) -> None:
        wrapped = llguidance.TokenizerWrapper(words)
        self._tokenizer = llguidance.LLTokenizer(wrapped, n_vocab=len(words.tokens), eos_token=words.end_ids)
        special = set(words.special_token_ids)
        patterns = PatternCompiler(
            [b"" if token_id in special else token for token_id, token in enumerate(words.tokens)],
            end_ids=words.end_ids,
            characters_of=cache(named_characters),
        )
        self._pattern = lru_cache(MAX_PATTERNS)(patterns.compile)

    def compile(self, structure: Structure, *, before: str | None = None) -> "Grammar":
        """A grammar at its beginning. Raises ParamsError with the compiler's words.

        `before`: a grammar in Lark's notation of what comes before `@answer`, which is the structure.
        """
        source = _source_of(structure) if before is None else _joined(before, structure)
        matcher = llguidance.LLMatcher(self._tokenizer, source, log_level=0, limits=LIMITS)
        problem = matcher.get_error() if matcher.is_error() else "; ".join(matcher.get_grammar_warnings())
        if problem:
            raise _refused(structure, problem)
        library = _LibraryPlace(matcher)
        pattern = self._pattern(structure.source) if structure.kind is StructureKind.REGEX and before is None else None
        grammar = Grammar(library if pattern is None else _PatternPlace(_native.PatternPlace(pattern), library))
        if not grammar.can_go_on():
            raise _refused(structure, matcher.get_error() or "no answer follows it")
        return grammar


class _Place(Protocol):
    """Where an answer is in its grammar."""

    def mask(self) -> bytes:
        """As `Grammar.allowed`."""

    def advance(self, token_id: int) -> None: ...
    def copy(self) -> Self: ...


class _LibraryPlace:
    """A place that llguidance knows."""

    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher

    def mask(self) -> bytes:
        mask = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            raise ValueError(_told(self._matcher.get_error()))
        return mask

    def advance(self, token_id: int) -> None:
        self._matcher.consume_token(token_id)

    def copy(self) -> "_LibraryPlace":
        return _LibraryPlace(self._matcher.deep_copy())


class _PatternPlace:
    """A place in a pattern: masks are our own, but of a text that is forced llguidance knows the tokens.

    It allows no other spelling of it than the tokenizer's behind the last token, of which the model has read most.
    Where one of the two gives up, as both have limits, the other goes on.
    """

    def __init__(self, own: _native.PatternPlace, library: _LibraryPlace) -> None:
        self._own = own
        self._library = library

    def mask(self) -> bytes:
        first, second = (self._library, self._own) if self._own.is_forced else (self._own, self._library)
        try:
            return first.mask()
        except ValueError:
            return second.mask()

    def advance(self, token_id: int) -> None:
        self._own.advance(token_id)
        self._library.advance(token_id)

    def copy(self) -> "_PatternPlace":
        return _PatternPlace(self._own.copy(), self._library.copy())


class Grammar:
    """The grammar of one answer: what may come next, given what came."""

    def __init__(self, place: _Place) -> None:
        self._place = place
        self._mask: bytes | None = None  # of the present place, once it was asked for
        self._foreseen: tuple[int, Grammar] | None = None  # a token that may come, and the place behind it

    def allowed(self) -> bytes:
        """A bit per token id, id i in bit i % 32 of little-endian word i // 32; end tokens where it may end.

        Raises ValueError when the grammar broke one of its limits.
        """
        if self._mask is None:
            self._mask = self._place.mask()
        return self._mask

    def can_go_on(self) -> bool:
        """Whether any token may come."""
        try:
            return any(self.allowed())
        except ValueError:
            return False

    def advance(self, token_id: int) -> None:
        """The answer grew by this token."""
        if self._foreseen is not None and self._foreseen[0] == token_id:
            there = self._foreseen[1]
            self._place, self._mask, self._foreseen = there._place, there._mask, there._foreseen
        else:
            self._place.advance(token_id)
            self._mask = self._foreseen = None

    def behind(self, token_id: int) -> "Grammar":
        """The place behind a token that may come next; what is asked there is known when it comes."""
        if self._foreseen is None or self._foreseen[0] != token_id:
            there = self.fork()
            there.advance(token_id)
            self._foreseen = token_id, there
        return self._foreseen[1]

    def fork(self) -> "Grammar":
        """The same place in the same grammar, for an answer that goes another way from here."""
        return Grammar(self._place.copy())


def _source_of(structure: Structure) -> str:
    kinds = llguidance.LLMatcher
    if structure.kind is StructureKind.REGEX:
        return kinds.grammar_from_regex(structure.source)
    if structure.kind is StructureKind.LARK:
        return kinds.grammar_from_lark(structure.source)
    if structure.kind is StructureKind.CHOICE:
        literals = [json.dumps(choice, ensure_ascii=False) for choice in structure.choices]
        return kinds.grammar_from_lark(f"start: {' | '.join(literals)}")
    schema = structure.source if structure.kind is StructureKind.JSON_SCHEMA else '{"type": "object"}'
    try:
        return kinds.grammar_from_json_schema(schema, overrides=cast("JsonCompileOptions", dict(JSON_OPTIONS)))
    except ValueError as error:
        raise _refused(structure, str(error)) from None


def _joined(before: str, structure: Structure) -> str:
    """Two grammars as one source: llguidance writes JSON and patterns in this form, Lark as it is."""
    source = _source_of(structure)
    is_lark = structure.kind in (StructureKind.LARK, StructureKind.CHOICE)
    answer = {"lark_grammar": source} if is_lark else json.loads(source)["grammars"][0]
    return json.dumps({"grammars": [{"name": "before", "lark_grammar": before}, {**answer, "name": "answer"}]})


def _refused(structure: Structure, problem: str) -> ParamsError:
    return ParamsError(f"structure of kind {structure.kind} is refused: {_told(problem)}", field="structure")


def _told(problem: str) -> str:
    """The compiler's words without the state it was in."""
    told = problem.partition("<state>")[0].strip()
    return told if len(told) <= MAX_PROBLEM else f"{told[:MAX_PROBLEM]}..."
