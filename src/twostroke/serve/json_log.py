"""The log as lines of JSON: one for every request that ended, one for everything the program has to say.

Switched on by `twostroke serve --json-logs`. Never holds prompts or answers.
"""

import json
import logging
from datetime import UTC, datetime

from twostroke.serve.answers import Answers
from twostroke.serve.records import record_of

request_logger = logging.getLogger("twostroke.requests")


class JsonLines(logging.Formatter):
    """A record as one line: time, level, message, and the facts it was given."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line | getattr(record, "facts", {}), ensure_ascii=False)


def log_in_json() -> None:
    """Make every handler of the process write JSON lines, and requests be logged."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonLines())
    request_logger.setLevel(logging.INFO)


def log_end(answers: Answers) -> None:
    """Called once the last answer has ended and every ledger is there. Tells the engine's times, sent or not."""
    if request_logger.isEnabledFor(logging.INFO):
        request_logger.info("request ended", extra={"facts": record_of(answers, until_sent=False)})
