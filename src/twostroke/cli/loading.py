"""From the name on the command line to a model on disk or in memory, with download progress on stderr."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twostroke.cli.entry import leaving_on_interrupt
from twostroke.cli.terms import ask_terms
from twostroke.config import Config
from twostroke.errors import ConfigError
from twostroke.model.catalog import resolve_model
from twostroke.view.progress import Progress
from twostroke.view.terminal import Terminal

if TYPE_CHECKING:
    from twostroke.llm import LLM

ModelOption = Annotated[
    str, typer.Option("--model", "-m", help="A name (twostroke models lists them), a file or a folder.")
]
SameModelOption = Annotated[
    str | None, typer.Option("--model", "-m", help="The same, as other commands are told.", show_default=False)
]
ContextOption = Annotated[int | None, typer.Option(help="Most tokens of prompt and answer together.")]
KVOption = Annotated[str | None, typer.Option(help="Precision of the KV cache: bf16 (default), f16, f32, int8.")]
SpeculateOption = Annotated[
    str | None,
    typer.Option(help="ngram: guess from the text itself; the same answer, sooner where it repeats."),
]
DraftModelOption = Annotated[
    str | None,
    typer.Option(help="A smaller model of the same vocabulary that guesses ahead for the (first) model."),
]
ThreadsOption = Annotated[int | None, typer.Option(help="As the dyno found best, else one per core.")]


def one_name(argument: str | None, option: str | None) -> str | None:
    """The model of a command that is told it either way. Raises ConfigError where both are said."""
    if argument is not None and option is not None:
        raise ConfigError(f"the model is named twice, {argument} and with --model {option}: keep one")
    return option if argument is None else argument


def find_model(name: str, *, config: Config, quiet: bool) -> Path:
    """The model's file or folder, fetched if it is not here yet; `quiet` neither shows progress nor asks."""
    if quiet:
        return resolve_model(name, home=config.home, ollama_models=config.ollama_models)
    terminal = Terminal.of(sys.stderr, config)
    with Progress(name, terminal=terminal) as progress:
        return resolve_model(
            name,
            home=config.home,
            ollama_models=config.ollama_models,
            on_progress=progress,
            accept_terms=ask_terms(terminal, before=progress.end_line),
        )


def load(
    name: str,
    *,
    config: Config,
    threads: int | None,
    context: int | None,
    kv: str | None,
    quiet: bool,
    speculate: str | None = None,
    draft_model: str | None = None,
) -> "LLM":
    """A loaded model; the caller closes it."""
    find_model(name, config=config, quiet=quiet)
    if draft_model is not None:
        find_model(draft_model, config=config, quiet=quiet)
    with leaving_on_interrupt():
        from twostroke.llm import LLM  # with all it stands on a third of a second
    return LLM(
        name,
        threads=threads,
        context=context,
        kv=kv,
        config=config,
        speculate=speculate,
        draft_model=draft_model,
    )
