"""`twostroke serve`: models behind the OpenAI API, and Ollama's where it is wanted, until Ctrl-C."""

import contextlib
import sys
from typing import Annotated

import typer

from twostroke.cli.entry import leaving_on_interrupt
from twostroke.cli.loading import (
    ContextOption,
    DraftModelOption,
    KVOption,
    SpeculateOption,
    ThreadsOption,
    find_model,
)
from twostroke.config import resolve
from twostroke.errors import ConfigError
from twostroke.model.catalog import DEFAULT_MODEL

PORT = 8000
OLLAMA_PORT = 11434  # where Ollama's clients look
MAX_DRAIN_S = 86_400  # no request has longer


def serve(
    *,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="A name, a file or a folder; may be repeated, the first is loaded at once."),
    ] = None,
    any_pulled: Annotated[
        bool, typer.Option("--any-pulled", help="Serve every model that is on this machine, by its name.")
    ] = False,
    keep_alive: Annotated[
        str, typer.Option(help='How long an unused model stays loaded: seconds or "5m"; 0 not at all, -1 for ever.')
    ] = "-1",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(help="8000 by default, 11434 with --ollama; 0 takes a free one.", show_default=False)
    ] = None,
    ollama: Annotated[
        bool, typer.Option("--ollama", help="Speak Ollama's API too, on its port, with --any-pulled.")
    ] = False,
    context: ContextOption = None,
    kv: KVOption = None,
    threads: ThreadsOption = None,
    speculate: SpeculateOption = None,
    draft_model: DraftModelOption = None,
    alias: Annotated[list[str] | None, typer.Option(help="Another name for the first model; may be repeated.")] = None,
    api_key: Annotated[str | None, typer.Option(help="What clients must send as a bearer token.")] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name clients may use in Host, '*' for any; may be repeated.")
    ] = None,
    max_requests: Annotated[int, typer.Option(help="Running and waiting; more are told to come back.", min=1)] = 256,
    json_logs: Annotated[bool, typer.Option("--json-logs", help="Log as JSON, a line for every request.")] = False,
    drain_s: Annotated[
        float, typer.Option(help="Time running answers get to end after SIGTERM.", min=0, max=MAX_DRAIN_S)
    ] = 30.0,
) -> None:
    """Answer over HTTP in OpenAI's API and Ollama's.

    Beside them /health, /ready, /metrics, /tokenize and /detokenize; docs/serving.md lists routes and fields.
    """
    if api_key is not None and not api_key.strip():
        raise ConfigError("--api-key is empty: give a key, or leave it out to serve whoever reaches the port")
    sources = model or [DEFAULT_MODEL]
    with leaving_on_interrupt():  # the web framework and the engine: half a second
        from twostroke.serve.heap import spare_what_stays, use_few_arenas

        use_few_arenas()
        from twostroke.footprint import free_memory_bytes
        from twostroke.model.shelf import Shelf
        from twostroke.serve.json_log import log_in_json
        from twostroke.serve.limits import LimitsConfig
        from twostroke.serve.llm_loader import LLMLoader, PulledModels
        from twostroke.serve.model_registry import ModelRegistry
        from twostroke.serve.model_slot import served_models
        from twostroke.serve.server import listen, serve as serve_until_stopped

    def announce(address: str) -> None:
        spare_what_stays()
        are = "is" if len(sources) == 1 else "are"
        beside = f", to Ollama's clients at {address}" if ollama else ""
        sys.stderr.write(f"twostroke: {', '.join(sources)} {are} served at {address}/v1{beside}, Ctrl-C ends\n")
        sys.stderr.flush()

    if json_logs:
        log_in_json()
    config = resolve()
    drafts = {} if draft_model is None else {sources[0]: draft_model}
    keep_alive_s = keep_alive_seconds(keep_alive)
    default_port = OLLAMA_PORT if ollama else PORT
    with listen(host, default_port if port is None else port) as listener:
        for source in [*sources, *drafts.values()]:  # what is not here is fetched now, never because a request says so
            find_model(source, config=config, quiet=False)
        models = ModelRegistry(
            served_models(sources, aliases=alias or ()),
            loader=LLMLoader(
                config=config, threads=threads, context=context, kv=kv, speculate=speculate, drafts=drafts
            ),
            free_bytes=free_memory_bytes,
            keep_alive_s=keep_alive_s,
            pulled=PulledModels(config) if any_pulled or ollama else None,
            on_change=spare_what_stays,
        )
        with contextlib.closing(models):
            models.load_first()
            serve_until_stopped(
                models,
                listener,
                api_key=api_key,
                allowed_hosts=allow_host or (),
                limits=LimitsConfig(max_open_requests=max_requests, drain_s=drain_s),
                on_ready=announce,
                shelf=Shelf(config.home) if ollama else None,
            )


def keep_alive_seconds(text: str) -> float:
    """Raises ConfigError."""
    from twostroke.serve.keep_alive import read_keep_alive

    try:
        return read_keep_alive(text)
    except ValueError as error:
        raise ConfigError(f"--keep-alive is {text!r}: {error}") from None
