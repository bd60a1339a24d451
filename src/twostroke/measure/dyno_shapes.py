"""Which steps the dyno times: rows at chosen depths, as many as the model's limits and KV blocks allow.

Each shape moves one class of ops: chunks without logits the linears, rows with logits the head, depth the
attention. Plain facts; dyno_steps.py runs them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from twostroke.program.cost import Row
from twostroke.program.program import KVGroup

Shape = tuple[Row, ...]

CHUNKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # tokens
BATCHES = (1, 4, 16, 32)  # rows that need logits
DEPTHS = ((1, 512), (1, 2048), (1, 4096), (4, 1024), (16, 512))  # decoding rows, tokens before them
CHUNKS_AT_DEPTH = ((256, 1024), (256, 2048), (32, 2048), (4, 2048))  # tokens, tokens before them
DECODE_DEPTH, PREFILL_TOKENS = 128, 256  # what phases are compared by


@dataclass(frozen=True, slots=True)
class Limits:
    """What one step of a loaded model may hold."""

    max_tokens: int
    max_rows: int
    context: int
    block_size: int
    num_blocks: tuple[int, ...]  # per KV group
    groups: tuple[KVGroup, ...]

    def allow(self, shape: Shape) -> bool:
        """Rows, tokens, depth and blocks suffice."""
        blocks = [sum(self.held(row, group) for row in shape) for group in self.groups]
        return (
            len(shape) <= self.max_rows
            and sum(row.num_tokens for row in shape) <= self.max_tokens
            and all(row.start_pos + row.num_tokens <= self.context for row in shape)
            and all(needed <= there for needed, there in zip(blocks, self.num_blocks, strict=True))
        )

    def first_block(self, row: Row, group: KVGroup) -> int:
        """The first block of a row that a window has not left behind."""
        return 0 if group.window is None else max(0, row.start_pos + 1 - group.window) // self.block_size

    def held(self, row: Row, group: KVGroup) -> int:
        """Blocks of a group that a row holds."""
        return -(-(row.start_pos + row.num_tokens) // self.block_size) - self.first_block(row, group)


def calibration_shapes(limits: Limits) -> tuple[Shape, ...]:
    """The steps that are fitted, short ones first."""
    shapes: list[Shape] = [(Row(0, tokens, needs_logits=False),) for tokens in CHUNKS]
    shapes += [(Row(0, 1),) * rows for rows in BATCHES]
    shapes += [(Row(depth, 1),) * rows for rows, depth in DEPTHS]
    shapes += [(Row(depth, tokens, needs_logits=False),) for tokens, depth in CHUNKS_AT_DEPTH]
    return tuple(shape for shape in shapes if limits.allow(shape))


def decode_shape(limits: Limits) -> Shape:
    """A decode step of one sequence."""
    return (Row(min(DECODE_DEPTH, limits.context - 1), 1),)


def prefill_shape(limits: Limits) -> Shape:
    """A chunk large enough for the rate of a prompt."""
    return (Row(0, min(PREFILL_TOKENS, limits.max_tokens, limits.context), needs_logits=False),)


def words(shape: Sequence[Row]) -> str:
    """`4 x 1 at 1024` and the like: rows x tokens at depth, + where rows differ."""
    kinds = dict.fromkeys((row.num_tokens, row.start_pos, row.needs_logits) for row in shape)
    parts = []
    for tokens, depth, needs_logits in kinds:
        count = sum((row.num_tokens, row.start_pos, row.needs_logits) == (tokens, depth, needs_logits) for row in shape)
        parts.append(f"{count} x {tokens} at {depth}" + ("" if needs_logits else ", no logits"))
    return " + ".join(parts)
