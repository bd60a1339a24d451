"""The flags of `run` for what an answer must look like: a schema, a pattern, choices or a grammar, one of them."""

from pathlib import Path
from typing import Annotated

import typer

from twostroke.cli.flag_words import told_in_flags
from twostroke.cli.text_file import read_text
from twostroke.errors import ConfigError
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
    if choice and "" in choice:
        raise ConfigError("--choice is empty: an answer has a text, give one")
    with told_in_flags(form_name(json_schema=json_schema, regex=regex, choice=choice, grammar=grammar)):
        if json_schema is not None:
            text = read_text(json_schema, flag="--json-schema")
            return Structure(kind=StructureKind.JSON_SCHEMA, source=text)
        if regex is not None:
            return Structure(kind=StructureKind.REGEX, source=regex)
        if choice:
            return Structure(kind=StructureKind.CHOICE, choices=tuple(choice))
        if grammar is not None:
            return Structure(kind=StructureKind.LARK, source=read_text(grammar, flag="--grammar"))
    return None


def form_name(
    *, json_schema: Path | None, regex: str | None, choice: list[str] | None, grammar: Path | None
) -> dict[str, str]:
    """What the user wrote for the field `structure`, of a file its name too; nothing where no form is asked for."""
    files = {"--json-schema": json_schema, "--grammar": grammar}
    written = [f"{flag} {path}" for flag, path in files.items() if path is not None]
    written += ["--regex"] if regex is not None else ["--choice"] if choice else []
    return {"structure": written[0]} if written else {}
