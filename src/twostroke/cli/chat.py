"""`twostroke chat`: a conversation in the terminal, with a model loaded here or behind a running server."""

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from twostroke.cli.chat_lines import history_in, piped_line, typed_line
from twostroke.cli.conversation import Conversation
from twostroke.cli.entry import leaving_on_interrupt
from twostroke.cli.loading import ContextOption, KVOption, ThreadsOption, load
from twostroke.cli.run import said_params
from twostroke.config import Config, resolve
from twostroke.errors import ConfigError
from twostroke.model.catalog import DEFAULT_MODEL
from twostroke.view.terminal import Terminal

if TYPE_CHECKING:
    from twostroke.cli.chat_sources import Source

HISTORY = "chat_history"  # in the cache directory


def chat(
    model: Annotated[str | None, typer.Argument(help="A model as for run; with --url its name there.")] = None,
    *,
    url: Annotated[str | None, typer.Option(help="Talk to a running server instead of loading a model.")] = None,
    api_key: Annotated[str | None, typer.Option(help="With --url: sent as a bearer token.")] = None,
    system: Annotated[str | None, typer.Option(help="System message of the conversation.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 takes the likeliest token; also /set.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens of an answer; also /set.")] = None,
    context: ContextOption = None,
    kv: KVOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Talk with a model. /help lists the commands; Ctrl-C ends an answer, Ctrl-D the chat."""
    settings = said_params(temperature=temperature, max_tokens=max_tokens)
    if url is not None and (context, kv, threads) != (None, None, None):
        raise ConfigError(
            "--context, --kv and --threads belong to a model that is loaded here: leave them out with --url"
        )
    if url is None and api_key is not None:
        raise ConfigError("--api-key belongs to --url")
    config = resolve()
    with leaving_on_interrupt():
        from twostroke.cli.chat_sources import LoadedSource, remote_source
    with ExitStack() as stack:
        if url is None:
            name = DEFAULT_MODEL if model is None else model
            llm = stack.enter_context(load(name, config=config, threads=threads, context=context, kv=kv, quiet=False))
            talk(LoadedSource(llm, config), Conversation(system=system, settings=settings), config)
        else:
            source = remote_source(url, model=model, api_key=api_key)
            talk(source, Conversation(system=system, settings=settings), config)


def talk(source: "Source", conversation: Conversation, config: Config) -> None:
    """A chat on this process's streams, until its person leaves; with a history where it is typed."""
    from twostroke.cli.chat_session import ChatSession

    notes = Terminal.of(sys.stderr, config)
    is_typed = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    session = ChatSession(
        source=source,
        conversation=conversation,
        write=Terminal.of(sys.stdout, config).write,
        note=notes.write_lines,
        is_typed=is_typed,
    )
    if not is_typed:
        return session.run(piped_line)
    notes.write_lines([f"{source.name}: ask, or /help; Ctrl-D leaves"])
    with history_in(config.home / HISTORY):
        session.run(typed_line)
    notes.write_lines([""])
