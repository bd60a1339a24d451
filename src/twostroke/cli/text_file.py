"""A text file that a flag names, read whole; errors name the flag. Called by the flags of `run`."""

from pathlib import Path

from twostroke.errors import ConfigError


def read_text(path: Path, *, flag: str) -> str:
    """Raises ConfigError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{flag} {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{flag} {path}: not UTF-8 at byte {error.start}: convert it, iconv -t UTF-8") from None
