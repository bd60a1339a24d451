"""The flags of `run` for samplers beyond the usual ones; docs/sampling.md says what each does."""

from typing import Annotated

import typer

PenaltyLastN = Annotated[int | None, typer.Option(help="Newest tokens the penalties look at; -1 (default): all.")]
TypicalP = Annotated[float | None, typer.Option(help="Keep the most typical tokens up to this mass.")]
TopNSigma = Annotated[float | None, typer.Option(help="Keep logits within n deviations of the best.")]
DynatempRange = Annotated[float | None, typer.Option(help="Temperature moves so far with the entropy.")]
DynatempExponent = Annotated[float | None, typer.Option(help="How the entropy moves it (default 1).")]
XTCProbability = Annotated[float | None, typer.Option(help="How often the top choices are left out.")]
XTCThreshold = Annotated[float | None, typer.Option(help="What share makes a top choice (default 0.1).")]
MirostatTau = Annotated[float | None, typer.Option(help="Mirostat v2: the surprise to aim at, in bits.")]
MirostatEta = Annotated[float | None, typer.Option(help="How fast mirostat learns (default 0.1).")]
DryMultiplier = Annotated[float | None, typer.Option(help="DRY: off tokens that would go on repeating.")]
DryBase = Annotated[float | None, typer.Option(help="Its growth per repeated token (default 1.75).")]
DryAllowedLength = Annotated[int | None, typer.Option(help="Repeated tokens it begins at (default 2).")]
DryPenaltyLastN = Annotated[int | None, typer.Option(help="Newest tokens DRY looks at; -1 (default): all.")]
DrySequenceBreaker = Annotated[
    list[str] | None, typer.Option(help='DRY begins anew behind this (line end : " *); may be repeated.')
]
NoRepeatNgramSize = Annotated[int | None, typer.Option(help="No run of so many tokens comes twice.")]
BadWord = Annotated[list[str] | None, typer.Option(help="Never say this; may be repeated.")]
SamplerOrder = Annotated[str | None, typer.Option(help="Samplers in this order, with commas.")]
