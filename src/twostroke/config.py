"""Settings of the process, frozen; the only reader of environment variables.

`resolve()` is called once at each door (command line, `LLM`), never deep inside. A TWOSTROKE_ variable
that nobody knows is an error, so that a typing mistake never runs with defaults.
"""

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from twostroke.errors import ConfigError

Isa = Literal["portable", "avx2", "avxvnni", "avx512", "neon", "neon_i8mm"]

PREFIX = "TWOSTROKE_"
MAX_THREADS = 1024  # more is a mistake on every machine this runs on
MAX_COLUMNS = 10_000
DEFAULT_PACKED_GB = 16  # three models of 8 billion parameters in four bits
MAX_PACKED_GB = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What the environment says, for the life of the process."""

    home: Path  # models, tokenizers and measured peaks are cached below it
    isa: Isa | None = None  # None: the best this CPU and OS offer
    threads: int | None = None  # None: one per core this process may use
    packed_bytes: int = DEFAULT_PACKED_GB * 10**9  # most that packed weights take below it; 0 keeps none
    ollama_models: Path
    has_color: bool = True  # NO_COLOR is not set
    is_dumb_terminal: bool = False  # TERM=dumb: no cursor movement either
    columns: int | None = None  # COLUMNS, where it is a number


def resolve(environ: Mapping[str, str] = os.environ) -> Config:
    """Read the environment. Raises ConfigError that names the variable, its value and what is allowed."""
    _reject_unknown(environ)
    home = _folder(environ, "TWOSTROKE_HOME")
    return Config(
        home=home if home is not None else _default_home(),
        isa=_isa(environ),
        threads=_threads(environ),
        packed_bytes=_packed_bytes(environ),
        ollama_models=_folder(environ, "OLLAMA_MODELS") or Path.home() / ".ollama" / "models",
        has_color=not environ.get("NO_COLOR"),
        is_dumb_terminal=environ.get("TERM") == "dumb",
        columns=_columns(environ.get("COLUMNS", "")),
    )


def _reject_unknown(environ: Mapping[str, str]) -> None:
    known = ("TWOSTROKE_HOME", "TWOSTROKE_ISA", "TWOSTROKE_PACKED_GB", "TWOSTROKE_THREADS")
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
            raise ConfigError(f"unknown environment variable {name}: {hint}")


def _default_home() -> Path:
    import platformdirs  # 5 ms that TWOSTROKE_HOME saves

    return Path(platformdirs.user_cache_dir("twostroke", appauthor=False))


def _folder(environ: Mapping[str, str], name: str) -> Path | None:
    value = environ.get(name)
    if value is None:
        return None
    if not value.strip():
        raise ConfigError(f"{name} is empty: name a folder or unset it")
    try:
        path = Path(value).expanduser()
    except RuntimeError:  # ~ or ~someone without a home
        raise ConfigError(f"{name} is {value!r}: no home folder is known for that ~, write the whole path") from None
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{name} is {value!r}: that is a file, name a folder")
    return path.absolute()


def _isa(environ: Mapping[str, str]) -> Isa | None:
    value = environ.get("TWOSTROKE_ISA")
    for isa in get_args(Isa):
        if value == isa:
            return isa  # type: ignore[no-any-return]
    if value is None:
        return None
    raise ConfigError(f"TWOSTROKE_ISA is {value!r}: it must be one of {', '.join(get_args(Isa))}, or unset")


def _threads(environ: Mapping[str, str]) -> int | None:
    value = environ.get("TWOSTROKE_THREADS")
    threads = None if value is None else _whole_number(value)
    if value is not None and (threads is None or not 1 <= threads <= MAX_THREADS):
        raise ConfigError(f"TWOSTROKE_THREADS is {value!r}: it must be a whole number from 1 to {MAX_THREADS}")
    return threads


def _packed_bytes(environ: Mapping[str, str]) -> int:
    value = environ.get("TWOSTROKE_PACKED_GB", str(DEFAULT_PACKED_GB))
    num_gb = _whole_number(value)
    if num_gb is None or num_gb > MAX_PACKED_GB:
        raise ConfigError(f"TWOSTROKE_PACKED_GB is {value!r}: it must be a whole number from 0 to {MAX_PACKED_GB}")
    return num_gb * 10**9


def _columns(value: str) -> int | None:
    """Shells set COLUMNS, not people: what makes no sense is no width rather than an error."""
    columns = _whole_number(value)
    return columns if columns is not None and 1 <= columns <= MAX_COLUMNS else None


def _whole_number(value: str) -> int | None:
    """ASCII digits alone, and few of them."""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None
