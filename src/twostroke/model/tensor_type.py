"""Tensor types as files store them: how many elements share a block and how many bytes it takes.

Sizes of types we cannot compute with are kept too, so that the bounds of every tensor in a file can
be checked. Called by the readers; knows nothing of arithmetic.
"""

from dataclasses import dataclass

SUPPORTED_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")


@dataclass(frozen=True, slots=True)
class BlockSize:
    """`num_bytes` hold `num_elements` neighbours of one row."""

    num_elements: int
    num_bytes: int


BLOCK_SIZES = {
    "F32": BlockSize(1, 4),
    "F16": BlockSize(1, 2),
    "BF16": BlockSize(1, 2),
    "F64": BlockSize(1, 8),
    "I8": BlockSize(1, 1),
    "I16": BlockSize(1, 2),
    "I32": BlockSize(1, 4),
    "I64": BlockSize(1, 8),
    "Q4_0": BlockSize(32, 18),
    "Q4_1": BlockSize(32, 20),
    "Q5_0": BlockSize(32, 22),
    "Q5_1": BlockSize(32, 24),
    "Q8_0": BlockSize(32, 34),
    "Q8_1": BlockSize(32, 40),
    "Q2_K": BlockSize(256, 84),
    "Q3_K": BlockSize(256, 110),
    "Q4_K": BlockSize(256, 144),
    "Q5_K": BlockSize(256, 176),
    "Q6_K": BlockSize(256, 210),
    "Q8_K": BlockSize(256, 292),
    "IQ1_S": BlockSize(256, 50),
    "IQ1_M": BlockSize(256, 56),
    "IQ2_XXS": BlockSize(256, 66),
    "IQ2_XS": BlockSize(256, 74),
    "IQ2_S": BlockSize(256, 82),
    "IQ3_XXS": BlockSize(256, 98),
    "IQ3_S": BlockSize(256, 110),
    "IQ4_NL": BlockSize(32, 18),
    "IQ4_XS": BlockSize(256, 136),
    "TQ1_0": BlockSize(256, 54),
    "TQ2_0": BlockSize(256, 66),
    "MXFP4": BlockSize(32, 17),
}

# The numbers GGUF writes. 4, 5, 31-33 and 36-38 are retired.
GGUF_TYPE_NAMES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    30: "BF16",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
}
