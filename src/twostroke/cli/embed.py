"""`twostroke embed`: vectors of texts as lines of JSON, for models whose file names a pooling."""

import json
import sys
from typing import Annotated

import typer

from twostroke.cli.loading import ContextOption, KVOption, ThreadsOption, load
from twostroke.config import resolve
from twostroke.errors import PromptError

NO_TEXT = "there is no text: give some as arguments, or one a line on stdin"


def embed(
    texts: Annotated[list[str] | None, typer.Argument(help="One vector each; without any, each line of stdin.")] = None,
    *,
    model: Annotated[str, typer.Option("--model", "-m", help="A model that embeds: a name, a file or a folder.")],
    dimensions: Annotated[int | None, typer.Option(help="Shorter vectors, of models made for it.", min=1)] = None,
    context: ContextOption = None,
    kv: KVOption = None,
    threads: ThreadsOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Print the vector of every text, float32 of unit length."""
    given = texts or read_lines()
    with load(model, config=resolve(), threads=threads, context=context, kv=kv, quiet=quiet) as llm:
        for text, vector in zip(given, llm.embed(given, dimensions=dimensions), strict=True):
            sys.stdout.write(json.dumps({"text": text, "embedding": vector.tolist()}, ensure_ascii=False) + "\n")


def read_lines() -> list[str]:
    """The lines of stdin. Raises PromptError where there is nothing, or no text."""
    if sys.stdin is None or sys.stdin.isatty():
        raise PromptError(NO_TEXT)
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise PromptError(f"stdin is not UTF-8 at byte {error.start}: convert it, iconv -t UTF-8") from None
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if lines == [""]:
        raise PromptError(NO_TEXT)
    return lines
