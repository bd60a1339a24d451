"""`twostroke serve`: a loaded model behind the OpenAI API until Ctrl-C."""

import sys
from typing import Annotated

import typer

from twostroke.cli.entry import leaving_on_interrupt
from twostroke.cli.loading import ContextOption, KVOption, ModelOption, SpeculateOption, ThreadsOption, load
from twostroke.config import resolve
from twostroke.errors import ConfigError
from twostroke.model.catalog import DEFAULT_MODEL


def serve(
    *,
    model: ModelOption = DEFAULT_MODEL,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
    context: ContextOption = None,
    kv: KVOption = None,
    threads: ThreadsOption = None,
    speculate: SpeculateOption = None,
    alias: Annotated[list[str] | None, typer.Option(help="Another name for the model; may be repeated.")] = None,
    api_key: Annotated[str | None, typer.Option(help="What clients must send as a bearer token.")] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name clients may use in Host, '*' for any; may be repeated.")
    ] = None,
    max_requests: Annotated[int, typer.Option(help="Running and waiting; more are told to come back.", min=1)] = 256,
    json_logs: Annotated[bool, typer.Option("--json-logs", help="Log as JSON, a line for every request.")] = False,
    drain_s: Annotated[float, typer.Option(help="Time running answers get to end after SIGTERM.", min=0)] = 30.0,
) -> None:
    """Answer over HTTP in OpenAI's API, beside it /health, /ready, /tokenize, /detokenize."""
    if api_key is not None and not api_key.strip():
        raise ConfigError("--api-key is empty: give a key, or leave it out to serve whoever reaches the port")
    with leaving_on_interrupt():  # the web framework: a fifth of a second
        from twostroke.serve.json_log import log_in_json
        from twostroke.serve.limits import LimitsConfig
        from twostroke.serve.server import listen, serve as serve_until_stopped

    def announce(address: str) -> None:
        sys.stderr.write(f"twostroke: {model} is served at {address}/v1, Ctrl-C ends\n")
        sys.stderr.flush()

    if json_logs:
        log_in_json()
    config = resolve()
    with (
        listen(host, port) as listener,
        load(model, config=config, threads=threads, context=context, kv=kv, quiet=False, speculate=speculate) as llm,
    ):
        serve_until_stopped(
            llm,
            listener,
            aliases=alias or (),
            api_key=api_key,
            allowed_hosts=allow_host or (),
            limits=LimitsConfig(max_open_requests=max_requests, drain_s=drain_s),
            on_ready=announce,
        )
