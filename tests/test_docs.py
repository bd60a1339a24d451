"""What the documents name exists: commands, flags, files, links, variables, names of Python. Nothing is run."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import twostroke
from twostroke.cli.app import app
from twostroke.config import resolve
from twostroke.errors import ConfigError

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "src" / "twostroke"
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")])
NAMES = [str(document.relative_to(REPOSITORY)) for document in DOCUMENTS]
TEST_DOCUMENTS = [str(each.relative_to(REPOSITORY)) for each in sorted(REPOSITORY.glob("tests/**/*.md"))]
MAX_LINE = 120
FOLDERS = (REPOSITORY, PACKAGE, REPOSITORY / "native", REPOSITORY / "tests", REPOSITORY / "docs")
SUFFIXES = (".py", ".h", ".cpp", ".md", "/")
FLAGS_OF_OTHERS = {"--quiet", "--only", "--tokens", "--draft-model"}  # of pip and of the benches, which have their own
PLACEHOLDER = re.compile(r"[<>*{}A-Z]")


def text_of(name: str) -> str:
    return (REPOSITORY / name).read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The code between fences of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def spans(text: str) -> list[str]:
    """Code inside sentences, line ends made blanks."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]


@cache
def commands() -> dict[str, set[str]]:
    """Every command, `bench serve` too, and its flags."""
    root: Any = typer.main.get_command(app)
    found = {"": flags_of(root)}
    for name, command in root.commands.items():
        found[name] = flags_of(command)
        for below, inner in getattr(command, "commands", {}).items():
            found[f"{name} {below}"] = flags_of(inner)
    return found


def flags_of(command: Any) -> set[str]:
    return {"-h", "--help", *(flag for each in command.params for flag in each.opts if flag.startswith("-"))}


def calls(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each `twostroke COMMAND ...` that a document writes down, and the flags behind it."""
    lines = [line for block in blocks(text, "sh") for line in block.replace("\\\n", " ").splitlines()]
    for line in [*lines, *spans(text)]:
        for call in re.findall(r"(?:^|[ /])twostroke ([a-z][^#|&]*)", re.sub(r'"[^"]*"|\'[^\']*\'', "TEXT", line)):
            words = call.split()
            name = " ".join(words[:2]) if " ".join(words[:2]) in commands() else words[0]
            yield name, [word.rstrip(",;:.)") for word in words if re.match(r"--?[a-z]", word)]


def test_the_readme_names_every_command() -> None:
    named = {name for name, _ in calls(text_of("README.md"))} | set(spans(text_of("README.md")))
    assert {name for name in commands() if name} - named == set()


@pytest.mark.parametrize("name", NAMES)
def test_commands_that_are_written_down_exist_and_take_their_flags(name: str) -> None:
    for command, flags in calls(text_of(name)):
        assert command in commands(), f"{name}: twostroke {command}"
        assert set(flags) - commands()[command] == set(), f"{name}: twostroke {command}"


@pytest.mark.parametrize("name", sorted({*NAMES} - {"BENCHMARKS.md", "CONTRIBUTING.md"}))
def test_flags_that_sentences_name_belong_to_a_command(name: str) -> None:
    known = set().union(*commands().values()) | FLAGS_OF_OTHERS
    said = {flag for span in spans(text_of(name)) for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", span)}
    assert said - known == set()


@pytest.mark.parametrize("name", NAMES)
def test_files_that_sentences_name_exist(name: str) -> None:
    for span in spans(text_of(name)):
        if " " in span or not span.endswith(SUFFIXES) or PLACEHOLDER.search(span) or "://" in span:
            continue
        inside = "/" in span.rstrip("/")
        found = any((folder / span).exists() for folder in FOLDERS)
        assert found or (not inside and any(REPOSITORY.glob(f"[nst]*/**/{span}"))), f"{name}: {span}"


@pytest.mark.parametrize("name", [*NAMES, *TEST_DOCUMENTS])
def test_no_line_is_longer_than_those_of_code(name: str) -> None:
    """Tables cannot be broken, and code is what it is."""
    block = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
    text = block.sub(lambda found: "\n" * found[0].count("\n"), text_of(name))
    lines = {number: line for number, line in enumerate(text.splitlines(), 1) if not line.lstrip().startswith("|")}
    assert [f"{name}:{number}" for number, line in lines.items() if len(line) > MAX_LINE] == []


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(name)):
        path, _, anchor = target.partition("#")
        document = (REPOSITORY / name).parent / path if path else REPOSITORY / name
        assert document.is_file(), f"{name}: {target}"
        titles = re.findall(r"^#+ (.+)$", document.read_text("utf-8"), re.MULTILINE) if anchor else []
        anchors = [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]
        assert not anchor or anchor in anchors, f"{name}: {target}"


@pytest.mark.parametrize("name", NAMES)
def test_python_that_is_shown_compiles_and_imports_public_names(name: str) -> None:
    for block in blocks(text_of(name), "python"):
        imports = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ImportFrom)]
        ours = {alias.name for node in imports if node.module == "twostroke" for alias in node.names}
        assert ours <= set(twostroke.__all__)


def test_architecture_has_a_place_for_every_room_and_every_file_beside_them() -> None:
    table = text_of("ARCHITECTURE.md").partition("| room | owns |")[2].partition("\n\n")[0]
    named = {span.rstrip("/") for span in spans(table)}
    rooms = {each.name for each in PACKAGE.iterdir() if (each / "__init__.py").is_file()}
    files = {each.name for each in PACKAGE.glob("*.py") if not each.name.startswith("__")}
    assert (rooms | files) - named == set()


def test_contributing_names_targets_that_make_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    said = set(re.findall(r"^make ([a-z-]+)", text_of("CONTRIBUTING.md"), re.MULTILINE))
    assert said
    assert said - targets == set()


def test_benchmarks_name_every_bench() -> None:
    """server_client.py is no bench: others run it."""
    benches = {each.name for each in Path(REPOSITORY / "bench").iterdir() if each.suffix in (".py", ".cpp")}
    named = set(re.findall(r"bench/(\w+\.\w+)", text_of("BENCHMARKS.md")))
    assert benches - named == {"server_client.py"}
    assert named - benches == set()


def test_settings_are_those_that_are_read() -> None:
    table = text_of("README.md").partition("## Settings")[2].partition("\n\n[")[0]
    with pytest.raises(ConfigError) as refusal:
        resolve({"TWOSTROKE_NOTHING_LIKE_IT": "x"})
    known = str(refusal.value).partition("known are ")[2]
    assert set(re.findall(r"`(TWOSTROKE_\w+)`", table)) == set(re.findall(r"TWOSTROKE_\w+", known))


def test_the_top_of_the_readme_is_the_picture_and_two_commands() -> None:
    top = text_of("README.md").partition("## How to")[0]
    assert "PREFILL" in top
    assert "DECODE" in top
    assert len(blocks(top, "sh")) == 2
    assert all(block.count("\n") == 1 for block in blocks(top, "sh"))
