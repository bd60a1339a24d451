"""Merge rules of a BPE vocabulary as token ids, best rule first.

Byte-level files spell the rules out; SentencePiece files give scores instead, and the rules follow
from them. Used by the builders; the result is what the tokenizer cache stores.
"""

from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet

import numpy as np
import numpy.typing as npt

MergeRules = npt.NDArray[np.int32]  # [num_rules, 3], ids of the left, the right and the joint piece


def rules_from_strings(
    merges: Iterable[str | Sequence[str]], *, id_of: Mapping[str, int], without: AbstractSet[int] = frozenset()
) -> MergeRules:
    """Rules written as "left right" or as [left, right]; rules that use or make an id in `without` are left out.

    A rule about a piece that is no token raises KeyError with the rule.
    """
    flat: list[int] = []
    for merge in merges:
        left, right = _sides(merge) if isinstance(merge, str) else merge
        try:
            ids = (id_of[left], id_of[right], id_of[left + right])
        except KeyError as error:
            raise KeyError(f"merge rule {merge!r} needs {error.args[0]!r}, which is no token") from None
        if without.isdisjoint(ids):
            flat += ids
    return np.array(flat, dtype=np.int32).reshape(-1, 3)


def _sides(merge: str) -> tuple[str, str]:
    """The pieces a space divides; the first one may begin with a space itself."""
    cut = merge.find(" ", 1)
    return (merge[:cut], merge[cut + 1 :]) if cut > 0 else (merge, "")


def rules_from_scores(scores: npt.NDArray[np.float32], *, id_of: Mapping[str, int]) -> MergeRules:
    """Rules of a SentencePiece BPE vocabulary: every way to join two pieces into a third, best score first.

    `id_of` holds the pieces that merging may use and make. SentencePiece joins the neighbours whose
    joint piece scores best (Kudo and Richardson 2018, section 3.1); a rule per split gives the same.
    """
    rows: list[tuple[float, int, int, int]] = []
    for piece, token_id in id_of.items():
        splits = []
        for cut in range(1, len(piece)):
            left = id_of.get(piece[:cut])
            if left is not None:
                right = id_of.get(piece[cut:])
                if right is not None:
                    splits.append((left, right))
        if splits:
            rank = -float(scores[token_id])
            rows.extend((rank, left, right, token_id) for left, right in sorted(splits))
    rows.sort(key=lambda row: row[0])
    return np.array([row[1:] for row in rows], dtype=np.int32).reshape(-1, 3)
