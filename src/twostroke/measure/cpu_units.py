"""Which wide units of the CPU an engine uses, read from its own words. A ratio is fair where both use the same.

Called by `bench`. It never asks the CPU: what a machine has says nothing about how an engine was built.
"""

import re

AVX512, VNNI = "AVX-512", "VNNI"
UNITS_OF_ISA = {"avx512": frozenset({AVX512, VNNI}), "avxvnni": frozenset({VNNI})}


def units_of_isa(isa: str) -> frozenset[str]:
    """Ours, by the name of the instruction set that runs."""
    return UNITS_OF_ISA.get(isa, frozenset())


def units_of_words(features: str) -> frozenset[str] | None:
    """A peer's: `AVX512_VNNI = 1` of llama.cpp, or a sentence of oneDNN; None where it says nothing.

    oneDNN speaks of its int8 dot products as Intel DL Boost.
    """
    flags = dict(re.findall(r"(\w+) = (\d)", features))
    if flags:
        is_on = {AVX512: flags.get("AVX512") == "1", VNNI: "1" in (flags.get("AVX512_VNNI"), flags.get("AVX_VNNI"))}
        return frozenset(unit for unit, on in is_on.items() if on)
    if not features:
        return None
    return frozenset(unit for unit, word in ((AVX512, "AVX-512"), (VNNI, "DL Boost")) if word in features)


def why_unfair(isa: str, features: str, *, peer: str) -> str | None:
    """Why there is no ratio between ours and this peer; None where there is one."""
    ours, theirs = units_of_isa(isa), units_of_words(features)
    if theirs is None:
        return f"no ratio: {peer} does not say which units of the CPU it uses"
    if ours == theirs:
        return None
    sides = [
        f"{' and '.join(sorted(only))} in {name} only"
        for name, only in (("twostroke", ours - theirs), (peer, theirs - ours))
        if only
    ]
    return f"no ratio: {', '.join(sides)}"
