"""`twostroke serve`: a loaded model behind the OpenAI API until Ctrl-C."""

import sys
from typing import Annotated

import typer

from twostroke.cli.entry import leaving_on_interrupt
from twostroke.cli.loading import ContextOption, KVOption, ModelOption, ThreadsOption, load
from twostroke.config import resolve
from twostroke.model.catalog import DEFAULT_MODEL


def serve(
    *,
    model: ModelOption = DEFAULT_MODEL,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8080,
    context: ContextOption = None,
    kv: KVOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Answer over HTTP: /v1/chat/completions, /v1/completions, /v1/models, /health."""
    with leaving_on_interrupt():  # the web framework: a fifth of a second
        from twostroke.serve.app import listen, serve as serve_until_stopped

    def announce(address: str) -> None:
        sys.stderr.write(f"twostroke: {model} is served at {address}/v1, Ctrl-C ends\n")
        sys.stderr.flush()

    config = resolve()
    with (
        listen(host, port) as listener,
        load(model, config=config, threads=threads, context=context, kv=kv, quiet=False) as llm,
    ):
        serve_until_stopped(llm, listener, on_ready=announce)
