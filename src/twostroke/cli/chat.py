"""`twostroke chat`: a conversation in the terminal, with a model loaded here or behind a running server."""

import sys
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from twostroke.cli.answer import cancel_on_interrupt
from twostroke.cli.chat_lines import history_in, keys_kept, keys_unseen, piped_line, typed_line
from twostroke.cli.conversation import Conversation
from twostroke.cli.entry import leaving_on_interrupt
from twostroke.cli.exit_code import code_of
from twostroke.cli.interrupts import Interrupts, interrupt
from twostroke.cli.loading import ContextOption, KVOption, SameModelOption, ThreadsOption, load, one_name
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
    same_model: SameModelOption = None,
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
    model = one_name(model, same_model)
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
    is_typed = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    interrupts = Interrupts() if is_typed else None
    on_interrupt = cancel_on_interrupt if interrupts is None else interrupts.calling
    conversation = Conversation(system=system, settings=settings)
    with ExitStack() as stack:
        source: Source
        if url is None:
            name = DEFAULT_MODEL if model is None else model
            llm = stack.enter_context(load(name, config=config, threads=threads, context=context, kv=kv, quiet=False))
            llm.check_writes()
            source = LoadedSource(llm, config, on_interrupt=on_interrupt)
        else:
            source = remote_source(url, model=model, api_key=api_key, on_interrupt=on_interrupt)
        talk(source, conversation, config, interrupts=interrupts)


def talk(source: "Source", conversation: Conversation, config: Config, *, interrupts: Interrupts | None) -> None:
    """A chat on this process's streams, until its person leaves; with a history and `interrupts` where it is typed."""
    from twostroke.cli.chat_session import ChatSession

    notes = Terminal.of(sys.stderr, config)
    session = ChatSession(
        source=source,
        conversation=conversation,
        write=Terminal.of(sys.stdout, config).write,
        note=notes.write_lines,
        aside=notes.write_aside,
        is_typed=interrupts is not None,
        while_answering=nullcontext if interrupts is None else keys_unseen,
    )
    if interrupts is None:
        session.run(piped_line)
        if session.first_error is not None:  # it is told, and nobody was there to mend it
            raise typer.Exit(code_of(session.first_error))
        return

    def read_line(prompt: str) -> str | None:
        with interrupts.calling(interrupt):
            return typed_line(prompt)

    with interrupts.heard(), history_in(config.home / HISTORY), keys_kept():
        notes.write_lines([f"{source.name}: ask, or /help; Ctrl-D leaves"])
        session.run(read_line)
    notes.write_lines([""])
