"""`twostroke show`: a model as its list of ops, with operations and bytes of both phases."""

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from twostroke.cli.entry import leaving_on_interrupt
from twostroke.cli.loading import SameModelOption, find_model, one_name
from twostroke.config import resolve
from twostroke.errors import ConfigError, ModelFileError

if TYPE_CHECKING:
    from twostroke.model.finite import FiniteCheck

PREFILL_TOKENS = 512  # a model made for less shows a prefill of its whole context


def show(
    model: Annotated[str | None, typer.Argument(help="A name, a file or a folder.", show_default=False)] = None,
    *,
    same_model: SameModelOption = None,
    prompt: Annotated[
        int | None, typer.Option("--prompt", "-p", min=1, help=f"Tokens of the prefill (default {PREFILL_TOKENS}).")
    ] = None,
    depth: Annotated[int, typer.Option("--depth", "-d", min=0, help="Tokens in the cache before the decode.")] = 0,
    kv: Annotated[str, typer.Option(help="Precision of the KV cache: f32, f16, bf16, int8.")] = "bf16",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Read every weight and say so; NaN or infinity is an error.")
    ] = False,
) -> None:
    """Print a model's ops, shapes, operations and bytes per phase. Nothing is run."""
    name = one_name(model, same_model)
    if name is None:
        raise ConfigError("no model is named: twostroke show MODEL; twostroke models lists some")
    with leaving_on_interrupt():  # NumPy and whoever reads models: a tenth of a second
        from twostroke.model.families import build_program
        from twostroke.model.finite import check_finite
        from twostroke.model.open import open_model
        from twostroke.program.listing import list_program, listing_dict, listing_text
        from twostroke.program.reader import Precision
    if kv not in get_args(Precision):
        raise ConfigError(f"--kv is {kv!r}: it must be one of {', '.join(get_args(Precision))}")
    source = open_model(find_model(name, config=resolve(), quiet=as_json))
    program = build_program(source)
    checked = check_finite(source) if check else None
    if checked is not None and checked.bad:
        bad = ", ".join(checked.bad)
        raise ModelFileError(source.path, f"weights are NaN or infinite in {bad}: fetch the file again")
    if prompt is None:
        prompt = min(PREFILL_TOKENS, program.context_length)
    _check_context(program.context_length, prompt=prompt, depth=depth)
    listing = list_program(program, kv_precision=kv, prefill_tokens=prompt, decode_depth=depth)
    if as_json:
        facts = listing_dict(listing) | ({} if checked is None else {"check": dataclasses.asdict(checked)})
        lines = [json.dumps(facts)]
    else:
        lines = [*listing_text(listing), *([] if checked is None else ["", *_check_lines(checked)])]
    sys.stdout.write("\n".join(lines) + "\n")


def _check_lines(checked: "FiniteCheck") -> list[str]:
    """What was read; of quantised blocks the scales, nothing else there can be NaN or infinite."""
    lines = [f"checked: {checked.num_weights:,} weights in {checked.num_tensors} tensors, none is NaN or infinite"]
    if checked.unread:
        lines.append(f"not checked, of types that are not supported: {', '.join(checked.unread)}")
    return lines


def _check_context(context: int, *, prompt: int, depth: int) -> None:
    """Both phases fit the model, or the limit is named."""
    if prompt > context:
        raise ConfigError(f"--prompt is {prompt}: the model was made for {context} tokens, at most {context} fit")
    if depth + 1 > context:
        raise ConfigError(
            f"--depth is {depth}: the model was made for {context} tokens, the decoded one is one more, "
            f"at most {context - 1} fit"
        )
