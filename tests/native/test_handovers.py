"""Values one product alone reads go to it prepared: the same bits as phase by phase, and only where that can be."""

import numpy as np
import pytest

from tests.builders_sources import make_source
from tests.program.step_builders import make_step
from twostroke import _native
from twostroke.model.families import build_program
from twostroke.model.source import ModelSource
from twostroke.program.fuse import Groups, unfused
from twostroke.program.native import NativeReader
from twostroke.program.program import Program
from twostroke.program.quant import FloatArray
from twostroke.program.reader import KVSpec
from twostroke.program.reference import ReferenceReader

EVERY_ISA = pytest.mark.parametrize("isa", _native.usable_isas())
EVERY_TYPE = pytest.mark.parametrize("tensor_type", ["Q8_0", "Q4_0", "Q4_1", "Q5_1", "Q4_K", "Q6_K"])
NUM_TOKENS = 70  # two shares of several register tiles
IDS = [(13 * index + 7) % 40 for index in range(NUM_TOKENS)]
KV = KVSpec("bf16", 16, (5,))
WIDTH = 256  # a super-block


def source_of(tensor_type: str, *, head_dim: int = 32) -> ModelSource:
    """Heads and MLP of whole blocks, two layers."""
    heads = WIDTH // head_dim
    block = {
        "attn_norm.weight": (WIDTH,),
        "attn_q.weight": (WIDTH, WIDTH),
        "attn_k.weight": (WIDTH // 2, WIDTH),
        "attn_v.weight": (WIDTH // 2, WIDTH),
        "attn_output.weight": (WIDTH, WIDTH),
        "ffn_norm.weight": (WIDTH,),
        "ffn_gate.weight": (2 * WIDTH, WIDTH),
        "ffn_up.weight": (2 * WIDTH, WIDTH),
        "ffn_down.weight": (WIDTH, 2 * WIDTH),
    }
    shapes = {f"blk.{layer}.{name}": shape for layer in range(2) for name, shape in block.items()}
    return make_source(
        metadata={
            "llama.embedding_length": WIDTH,
            "llama.feed_forward_length": 2 * WIDTH,
            "llama.attention.head_count": heads,
            "llama.attention.head_count_kv": heads // 2,
            "llama.attention.key_length": head_dim,
            "llama.context_length": 80,
        },
        shapes={
            **shapes,
            "token_embd.weight": (40, WIDTH),
            "output_norm.weight": (WIDTH,),
            "output.weight": (40, WIDTH),
        },
        tensor_type=tensor_type,
    )


def reader_of(
    source: ModelSource, *, groups: Groups | None = None, isa: str | None = None, threads: int = 2
) -> tuple[Program, NativeReader]:
    program = build_program(source)
    reader = NativeReader(
        program, source.tensors, kv=KV, threads=threads, max_tokens=NUM_TOKENS, max_rows=4, isa=isa, groups=groups
    )
    return program, reader


def in_chunks(program: Program, reader: NativeReader, size: int) -> FloatArray:
    logits = [
        reader.run(make_step(program, [(IDS[first : first + size], first, range(5))])).copy()
        for first in range(0, NUM_TOKENS, size)
    ]
    return np.concatenate(logits)


def num_handovers(source: ModelSource, groups: Groups | None = None) -> int:
    return reader_of(source, groups=groups)[1]._bound.num_handovers


@EVERY_ISA
@EVERY_TYPE
def test_bits_are_those_of_single_phases_however_tokens_come(isa: str, tensor_type: str) -> None:
    source = source_of(tensor_type)
    program, apart = reader_of(source, groups=unfused(build_program(source)), isa=isa)
    wanted = in_chunks(program, apart, NUM_TOKENS)
    for threads in (1, 2):
        _, reader = reader_of(source, isa=isa, threads=threads)
        for size in (NUM_TOKENS, 33, 7, 3, 1):
            assert np.array_equal(in_chunks(program, reader, size).view(np.uint32), wanted.view(np.uint32))


@EVERY_TYPE
def test_logits_are_those_of_the_definition(tensor_type: str) -> None:
    source = source_of(tensor_type)
    program, reader = reader_of(source)
    reference = ReferenceReader(program, source.tensors, kv=KV, activations="a8")
    step = make_step(program, [(IDS, 0, range(5))])
    wanted = reference.run(step)
    assert np.abs(reader.run(step) - wanted).mean() < 0.02 * np.abs(wanted).mean()


def test_attention_gives_to_its_projection_and_the_gate_to_the_last_product() -> None:
    source = source_of("Q4_1")
    # of two layers; between the last attention and its projection tokens are selected
    assert num_handovers(source) == 3
    # gate, activation and product as phases of their own: values lie in memory between them
    assert num_handovers(source, unfused(build_program(source))) == 1


def test_floats_and_heads_that_are_no_whole_blocks_are_not_given() -> None:
    assert num_handovers(source_of("F32")) == 0
    assert num_handovers(source_of("BF16")) == 0
    assert num_handovers(source_of("Q8_0", head_dim=16)) == 2
