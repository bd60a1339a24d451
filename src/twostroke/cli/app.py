"""The program `twostroke`: puts the commands together and turns every error into one clean line."""

import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import twostroke
from twostroke.cli.bench import bench
from twostroke.cli.bench_serve import bench_serve
from twostroke.cli.chat import chat
from twostroke.cli.compare import compare
from twostroke.cli.delete import delete
from twostroke.cli.dyno import dyno
from twostroke.cli.embed import embed
from twostroke.cli.exit_code import ExitCode, code_of
from twostroke.cli.flag_words import in_flags
from twostroke.cli.models import models
from twostroke.cli.pull import pull
from twostroke.cli.run import run
from twostroke.cli.serve import serve
from twostroke.cli.show import show
from twostroke.cli.stdout import is_of_stdout, name_its_errors
from twostroke.errors import PromptError, TwostrokeError
from twostroke.view.terminal import speak_utf8

LEFT_OVER = "Got unexpected extra argument(s)"
UNKNOWN_WORDS = re.compile(rf"(?:{re.escape(LEFT_OVER)} \(|No such command ')(?P<words>[^')]*)")
MODEL_MARKS = ":/."  # one of them is in the name of every model that is offered, and of most files
NO_MODEL_OPTION = ("No such option: -m", "No such option: --model")
PLAIN_WORDS = {  # for those of the command-line library
    "Input should be a valid integer, unable to parse string as an integer": "it must be a whole number",
    "Input should be a valid number, unable to parse string as a number": "it must be a number",
    LEFT_OVER: "Text of several words wants quotes, these were left over:",
    "Input should be greater than or equal to": "it must be at least",
    "Input should be less than or equal to": "it must be at most",
}


app = typer.Typer(
    name="twostroke",
    help="Run language models on CPUs and see what prefill and decode do.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (run, chat, compare, embed, pull, delete, models, show, dyno, serve):
    app.command()(command)
benches = typer.Typer(invoke_without_command=True, callback=bench, rich_markup_mode=None)
benches.command("serve")(bench_serve)
app.add_typer(benches, name="bench")


def show_version(is_asked: bool) -> None:
    if is_asked:
        sys.stdout.write(f"twostroke {twostroke.__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", is_eager=True, callback=show_version)
    ] = False,
) -> None:
    """The options before the command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` default to those of the process."""
    name_its_errors()
    speak_utf8()
    logging.basicConfig(format="twostroke: %(message)s", level=logging.WARNING)
    given: list[str] = []
    try:
        given = [utf8_argument(argument) for argument in (sys.argv[1:] if arguments is None else arguments)]
        code = command_code(given)
        sys.stdout.flush()
    except typer.TyperException as error:
        return fail(misread(error, given), ExitCode.USER_MISTAKE)
    except TwostrokeError as error:
        return fail(in_flags(error), code_of(error))
    except BrokenPipeError:
        return leave_quietly()
    except OSError as error:
        return fail(unwritten(error) if is_of_stdout(error) else str(error), ExitCode.FAILED)
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        return fail(f"internal error, please report it: {type(error).__name__}: {error}", ExitCode.FAILED)
    return code


def command_code(given: Sequence[str]) -> int:
    """Run the command of a line. The library's own way to do so ends the program where the reader of its help left."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("twostroke", list(given)) as context:
            code = command.invoke(context)
    except typer.Exit as leaving:
        return leaving.exit_code
    return code if isinstance(code, int) else ExitCode.DONE


def misread(error: typer.TyperException, given: Sequence[str]) -> str:
    """What is wrong with a command line, where else a model is named, and the help of the command it was meant for."""
    said = error.format_message().rstrip(".")
    path, command = command_of(given)
    flag = next((min(each.opts, key=len) for each in command.params if each.name == "model" and each.opts), None)
    takes_text = any(each.param_type_name == "argument" for each in command.params)
    if flag is not None and not takes_text and (found := UNKNOWN_WORDS.match(said)):
        said = said.replace(LEFT_OVER, "What is no flag is left over", 1)
        if any(mark in found["words"] for mark in MODEL_MARKS) and not said.endswith("?"):
            said += f": a model is named with {flag}"
    elif takes_text and said.startswith(NO_MODEL_OPTION):
        said = f"{said.partition(' (')[0]}: the name stands here without one"
    for theirs, plain in PLAIN_WORDS.items():
        said = said.replace(theirs, plain, 1)  # what a user wrote stands behind it
    return f"{said}; {path} --help shows what there is"


def command_of(given: Sequence[str]) -> tuple[str, Any]:
    """The command that a line means, as far as it names one: how it is called, and what it takes."""
    path, command = "twostroke", typer.main.get_command(app)
    for word in given:
        below = getattr(command, "commands", {})
        if word not in below:
            break
        path, command = f"{path} {word}", below[word]
    return path, command


def utf8_argument(argument: str) -> str:
    """The bytes of an argument read as UTF-8, whatever locale Python decoded them with."""
    try:
        return os.fsencode(argument).decode("utf-8")
    except UnicodeDecodeError as error:
        raise PromptError(
            f"argument {argument!r} is not UTF-8 at byte {error.start}: convert it, iconv -t UTF-8"
        ) from None


def fail(message: str, code: ExitCode) -> ExitCode:
    """One line on stderr, whatever the message holds."""
    sys.stderr.write(f"twostroke: {' '.join(message.split())}\n")
    return code


def leave_quietly() -> ExitCode:
    """The reader of stdout has seen enough (`| head -1`): nothing is wrong, and nothing more is written."""
    drop_stdout()
    return ExitCode.DONE


def unwritten(error: OSError) -> str:
    """What is wrong with stdout, on a full disk for instance; what waits for it is dropped."""
    drop_stdout()
    return f"stdout cannot be written: {error.strerror}; what is there is not whole"


def drop_stdout() -> None:
    """Python would try again at its end to write what waits, and complain in words and an exit code of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
