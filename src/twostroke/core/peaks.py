"""What this machine can do, as measured here: the denominators of utilisation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peaks:
    """Peak rates with `threads` threads. Operations count multiply and add as two."""

    threads: int
    isa: str
    int8_ops_per_s: float
    bf16_ops_per_s: float
    fp32_ops_per_s: float
    read_bytes_per_s: float
