"""`twostroke compare`: one prompt, several ways to choose tokens, side by side in one batch."""

import dataclasses
import json
import sys
from typing import Annotated

import typer

from twostroke.cli.loading import ContextOption, KVOption, ModelOption, ThreadsOption, load
from twostroke.cli.run import PRESET_NAMES, question
from twostroke.config import resolve
from twostroke.errors import ParamsError
from twostroke.model.catalog import DEFAULT_MODEL
from twostroke.params import SamplingParams
from twostroke.presets import PRESETS, Preset, preset
from twostroke.view.terminal import Terminal


def compare(
    prompt: Annotated[
        str | None, typer.Argument(help="The question; - reads it from stdin.", show_default=False)
    ] = None,
    *,
    model: ModelOption = DEFAULT_MODEL,
    strategy: Annotated[
        list[str] | None, typer.Option(help=f"One of {PRESET_NAMES}; may be repeated. All by default.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="System message before the question.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text as it is: no chat template.")] = False,
    max_tokens: Annotated[int, typer.Option(help="Most tokens of each answer.")] = 64,
    seed: Annotated[int, typer.Option(help="Of those that draw: same seed, same answer.")] = 0,
    context: ContextOption = None,
    kv: KVOption = None,
    threads: ThreadsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array instead of text.")] = False,
) -> None:
    """Answer one prompt with several strategies. Shows text, log-probability, entropy, time per phase."""
    chosen = chosen_presets(strategy)
    asked = question(prompt, system=system, raw=raw)
    SamplingParams(max_tokens=max_tokens, seed=seed)  # refuses what is out of range before any model is loaded
    config = resolve()
    with load(model, config=config, threads=threads, context=context, kv=kv, quiet=as_json) as llm:
        from twostroke.measure.strategies import compare_strategies
        from twostroke.view.strategies_report import strategies_json, strategies_text

        limits = dataclasses.replace(llm.default_params.limits(), max_tokens=max_tokens)
        wishes = [with_seed(each.within(limits), seed) for each in chosen]
        outcomes = list(zip(chosen, compare_strategies(llm, asked, wishes), strict=True))
    if as_json:
        sys.stdout.write(json.dumps(strategies_json(outcomes), ensure_ascii=False, allow_nan=False) + "\n")
    else:
        Terminal.of(sys.stdout, config).write(strategies_text(outcomes) + "\n")


def chosen_presets(names: list[str] | None) -> list[Preset]:
    """In the order asked for; all of them where nothing is."""
    if not names:
        return list(PRESETS)
    try:
        return [preset(name) for name in names]
    except ParamsError as error:
        raise ParamsError(f"--strategy{str(error).removeprefix(error.field)}", field="strategy") from None


def with_seed(params: SamplingParams, seed: int) -> SamplingParams:
    """A search draws nothing and takes no seed."""
    return params if params.beam is not None else dataclasses.replace(params, seed=seed)
