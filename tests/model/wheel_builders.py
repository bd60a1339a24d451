"""Tiny packaged models: wheels as ZIP files, and programs that answer like a Python with or without pip."""

import hashlib
import shutil
import sys
import zipfile
from pathlib import Path

from twostroke.model.packaged_fetch import Download
from twostroke.model.packaged_model import PackagedModel, TermsSource, Wheel
from twostroke.model.wheel import OnBytes

PARTS = (b"first half, ", b"second half")
TERMS_PAGE = b"<html><style>x{}</style><div class='devsite-article-body'><p>Be <b>kind</b>.</p></div><p>menu</p></html>"


def make_wheel(folder: Path, wheel: Wheel, data: bytes) -> Path:
    """A file named as pip names it, with one member."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{wheel.package.replace('-', '_')}-{wheel.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(wheel.member, data)
    return path


def tiny_model(*, has_terms: bool = False, sha256: str | None = None, file_bytes: int | None = None) -> PackagedModel:
    data = b"".join(PARTS)
    terms = TermsSource("Terms of Kindness", "example.org/terms", Wheel("tiny", "1.0", 10, "tiny/TERMS.html"))
    return PackagedModel(
        name="tiny:1b",
        file_name="tiny.gguf",
        description="two halves",
        license="MIT",
        sha256=hashlib.sha256(data).hexdigest() if sha256 is None else sha256,
        file_bytes=len(data) if file_bytes is None else file_bytes,
        wheels=(Wheel("tiny-part1", "1.0", 100, "tiny/part0"), Wheel("tiny-part2", "1.0", 200, "tiny/part1")),
        terms=terms if has_terms else None,
    )


def fake_python(folder: Path, *, shelf: Path | None, version: str = "26.3", extra: str = "") -> Path:
    """A program that takes `-P -m pip ...`: `download` copies from the shelf, None stands for no pip at all."""
    path = folder / "python"
    body = f"""#!{sys.executable} -IS
import pathlib, shutil, sys
arguments = sys.argv[1:]
assert arguments[:3] == ["-P", "-m", "pip"], arguments
shelf = {str(shelf) if shelf else None!r}
if shelf is None:
    sys.exit("No module named pip")
if arguments[3] == "--version":
    print("pip {version} from somewhere")
    sys.exit()
assert arguments[3:7] == ["download", "--no-deps", "--only-binary", ":all:"], arguments
{extra}
wanted = arguments[-1].replace("==", "-").replace("-", "_")
found = [file for file in pathlib.Path(shelf).iterdir() if file.name.replace("-", "_").startswith(wanted + "_")]
if not found:
    sys.exit("ERROR: No matching distribution found for " + arguments[-1])
print("Collecting", arguments[-1])
style = arguments[arguments.index("--progress-bar") + 1]
if style == "raw":
    print("Progress 0 of 90")
    print("Progress 90 of 90")
shutil.copy(found[0], arguments[arguments.index("--dest") + 1])
"""
    path.write_text(body)
    path.chmod(0o755)
    return path


def download_from(shelf: Path) -> Download:
    """What `download_wheel` does, without pip: copies from the shelf and reports twice."""

    def download(wheel: Wheel, folder: Path, *, on_bytes: OnBytes) -> Path:
        (path,) = shelf.glob(f"{wheel.package.replace('-', '_')}-{wheel.version}-*.whl")
        on_bytes(0)
        on_bytes(90)
        return Path(shutil.copy(path, folder))

    return download


def fill_shelf(folder: Path, model: PackagedModel) -> Path:
    for wheel, data in zip(model.wheels, PARTS, strict=True):
        make_wheel(folder, wheel, data)
    if model.terms is not None:
        make_wheel(folder, model.terms.wheel, TERMS_PAGE)
    return folder
