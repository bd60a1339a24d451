"""Patterns that an answer follows, as automata of bytes (Thompson 1968) which native code masks tokens with.

`PatternCompiler` is made once per vocabulary, by `grammar.py`. A pattern it does not read is left to llguidance, which
can follow all of them and takes a walk over the vocabulary for every place in an answer that it has not seen: where a
pattern counts, that is every place.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from twostroke import _native
from twostroke.sample.characters import ByteRanges, Characters
from twostroke.sample.pattern_syntax import Chain, Choice, Node, Repeat, Unread, read_pattern

MAX_POSITIONS = 4096  # with repetitions written out: making them is work in Python beside everybody's steps
MAX_STAGES = 2048  # times at most 255 classes of bytes, 2 MB in native code
FEW_NODES = 4096  # of a vocabulary's trie: walked over one by one sooner than grouped
FORK, END = -1, -2  # in the place of a kind
TAKEN = -1  # in the place of a stage


class PatternCompiler:
    """Makes patterns over one vocabulary; safe to share between threads."""

    def __init__(
        self,
        tokens: Sequence[bytes],
        *,
        end_ids: Sequence[int],
        characters_of: Callable[[str], Characters],
        few_nodes: int = FEW_NODES,
    ) -> None:
        r"""`tokens` are empty where text is not made of them; `characters_of` says what `\d`, `\s` and `\w` are."""
        self._vocabulary = _native.PatternVocabulary(list(tokens), end_ids=list(end_ids))
        self._characters_of = characters_of
        self._few_nodes = few_nodes

    def compile(self, source: str) -> _native.Pattern | None:
        """None: it is not read here, or too large."""
        if len(source) > MAX_POSITIONS:
            return None
        try:
            node = read_pattern(source, characters_of=self._characters_of)
        except Unread:
            return None
        if _size(node) > MAX_POSITIONS:
            return None
        automaton = _Automaton()
        automaton.finish(node)
        if not all(kind.ranges for kind in automaton.kinds):  # states are live as every character can be taken
            return None
        stages = _Stages()
        first_stages = [stages.add(kind.sequences()) for kind in automaton.kinds]
        if len(stages) > MAX_STAGES:
            return None
        return _native.Pattern(
            self._vocabulary,
            positions=np.array(automaton.positions, np.int32).reshape(-1, 3),
            first_stages=first_stages,
            steps=np.array(stages.steps, np.int32).reshape(-1, 3),
            labels=stages.labels,
            few_nodes=self._few_nodes,
        )


def _size(node: Node) -> int:
    """Positions of the automaton, counted before any is made: repetitions are copies."""
    match node:
        case Characters():
            return 1
        case Chain(parts):
            return sum(map(_size, parts))
        case Choice(parts):
            return sum(map(_size, parts)) + len(parts) - 1
        case Repeat(part, least, most):
            size = _size(part)
            return size * least + (size + 1) * (1 if most is None else most - least)  # what may stay out needs a fork


@dataclass(slots=True)
class _Automaton:
    """Grows from its end to its beginning, one position at a time: each knows what comes behind it."""

    positions: list[tuple[int, int, int]] = field(default_factory=lambda: [(FORK, 0, 0)])  # kind, next, other
    kinds: dict[Characters, int] = field(default_factory=dict)

    def finish(self, node: Node) -> None:
        start = self._add(node, self._put(END, 0, 0))
        self.positions[0] = (FORK, start, start)

    def _put(self, kind: int, following: int, other: int) -> int:
        self.positions.append((kind, following, other))
        return len(self.positions) - 1

    def _add(self, node: Node, behind: int) -> int:
        """Where a part begins that is followed by what begins at `behind`."""
        match node:
            case Characters():
                return self._put(self.kinds.setdefault(node, len(self.kinds)), behind, 0)
            case Chain(parts):
                for part in reversed(parts):
                    behind = self._add(part, behind)
                return behind
            case Choice(parts):
                start, *others = [self._add(part, behind) for part in parts]
                for other in others:
                    start = self._put(FORK, start, other)
                return start
            case Repeat():
                return self._add_repeat(node, behind)

    def _add_repeat(self, repeat: Repeat, behind: int) -> int:
        start = behind
        if repeat.most is None:
            start = self._put(FORK, behind, behind)
            self.positions[start] = (FORK, self._add(repeat.part, start), behind)
        for _ in range(repeat.least, repeat.least if repeat.most is None else repeat.most):
            start = self._put(FORK, self._add(repeat.part, start), behind)
        for _ in range(repeat.least):
            start = self._add(repeat.part, start)
        return start


class _Stages:
    """Bytes of characters: what may follow some of them is one stage, wherever it comes up."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int, int]] = []  # stage, label, next stage or TAKEN
        self._labels: dict[frozenset[int], int] = {}
        self._numbers: dict[tuple[ByteRanges, ...], int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def labels(self) -> "np.ndarray[tuple[int, int], np.dtype[np.bool_]]":
        """[num_labels, 256]"""
        rows = np.zeros((len(self._labels), 256), np.bool_)
        for label, index in self._labels.items():
            rows[index, list(label)] = True
        return rows

    def add(self, sequences: tuple[ByteRanges, ...]) -> int:
        """The stage at which these may come."""
        known = self._numbers.get(sequences)
        if known is not None:
            return known
        stage = self._numbers[sequences] = len(self._numbers)
        rests: dict[tuple[int, int], list[ByteRanges]] = {}
        for head, *rest in sequences:
            rests.setdefault(head, []).append(tuple(rest))
        labels: dict[int, set[int]] = {}  # by the stage behind
        for (first, last), behind in rests.items():
            following = self.add(tuple(behind)) if behind[0] else TAKEN
            labels.setdefault(following, set()).update(range(first, last + 1))
        for following, label in labels.items():
            self.steps.append((stage, self._labels.setdefault(frozenset(label), len(self._labels)), following))
        return stage
