"""The flags of `run` for what an answer must look like: a schema, a pattern, choices or a grammar, one of them."""

from pathlib import Path
from typing import Annotated

import typer

from twostroke.cli.text_file import read_text
from twostroke.errors import ConfigError, ParamsError
from twostroke.structure import Structure, StructureKind

JSONSchema = Annotated[Path | None, typer.Option(help="File of a JSON schema the answer follows.")]
Regex = Annotated[str | None, typer.Option(help="Pattern of the whole answer.")]
Choice = Annotated[list[str] | None, typer.Option(help="The answer is this or another of them; may be repeated.")]
Grammar = Annotated[Path | None, typer.Option(help="File of a grammar in Lark's notation the answer follows.")]


def said_structure(
    *,
    json_schema: Path | None = None,
    regex: str | None = None,
    choice: list[str] | None = None,
    grammar: Path | None = None,
) -> Structure | None:
    """What was asked for, checked for its form before any model is loaded. Raises ConfigError and ParamsError."""
    flags = {"--json-schema": json_schema, "--regex": regex, "--choice": choice or None, "--grammar": grammar}
    given = [flag for flag, value in flags.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} are both given: an answer has one form, keep one")
    try:
        if json_schema is not None:
            text = read_text(json_schema, flag="--json-schema")
            return Structure(kind=StructureKind.JSON_SCHEMA, source=text)
        if regex is not None:
            return Structure(kind=StructureKind.REGEX, source=regex)
        if choice:
            return Structure(kind=StructureKind.CHOICE, choices=tuple(choice))
        if grammar is not None:
            return Structure(kind=StructureKind.LARK, source=read_text(grammar, flag="--grammar"))
    except ParamsError as error:
        raise ParamsError(f"{given[0]}{str(error).removeprefix('structure')}", field=error.field) from None
    return None
