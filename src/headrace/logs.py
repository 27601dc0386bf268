"""Log lines as text or JSON, on standard error and in a file of the state directory.

Modules log with Python's `logging` under the name `headrace`. Facts that a program may look for go beside the message:
`_log.info("...", extra=facts(stream="s", epoch=3))`. The commands `headrace run` and `headrace serve` set this up; a
program that has a hub of its own decides itself.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from logging.handlers import MemoryHandler, RotatingFileHandler
from pathlib import Path
from typing import Any, Literal

from headrace.durable import private_opener
from headrace.errors import kind_of

LogFormat = Literal["text", "json"]
FILE = "hub.log"
# Ten files hold about 100,000 epochs: a day of a busy stream.
FILE_BYTES, KEPT_FILES = 4 << 20, 9
WAITING_RECORDS = 1000
# What `headrace run` says on its own in text.
TOLD = frozenset({"pipeline_failed", "sink_detached", "stream_retrying", "stream_dead", "stream_running"})
# The files of a state directory that say what happened, and what is in each.
FILES = {
    FILE: "epochs, failures and warnings of the hub",
    "spark.log": "errors of Spark since it was last started",
    "spark.log.1": "errors of Spark in the run before",
    "gateway.log": "errors of the gateway of pushed streams",
}


def facts(event: str, code: str | None = None, **values: Any) -> dict[str, Any]:
    """Facts for `extra`. `event` is what happened, in one word; `code` is the code of an error."""
    return {"facts": {"event": event, **({"code": code} if code else {}), **values}}


def code_of(text: str) -> str | None:
    """The code of the error that `text` begins with, if it is one of ours."""
    kind = kind_of(text)
    return None if kind is None else kind.code


class JsonLines(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, and the facts of the record."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """The level and the message, with the time before them if `timed`."""

    def __init__(self, timed: bool) -> None:
        super().__init__()
        self._timed = timed

    def format(self, record: logging.LogRecord) -> str:
        line = f"{record.levelname}: {record.getMessage()}"
        code = getattr(record, "facts", {}).get("code")
        if code is not None and f"[{code}]" not in line:
            line += f" [{code}]"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return f"{_moment(record)} {line}" if self._timed else line


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _PrivateFile(RotatingFileHandler):
    def _open(self) -> Any:
        return open(self.baseFilename, self.mode, encoding="utf-8", opener=private_opener)


class Logs:
    """Where the log lines of this process go. Made by `logging_to`."""

    def __init__(self, form: LogFormat) -> None:
        self.form = form
        self._waiting = MemoryHandler(WAITING_RECORDS, flushLevel=logging.CRITICAL + 1, flushOnClose=False)
        self._file: logging.Handler | None = None
        logging.getLogger("headrace").addHandler(self._waiting)

    def keep(self, directory: Path) -> None:
        """Also write to the log file of a state directory that this process owns, from the first line on. Without room
        for it, the hub runs without."""
        with suppress(OSError):
            file = _PrivateFile(directory / FILE, maxBytes=FILE_BYTES, backupCount=KEPT_FILES)
            file.setFormatter(_formatter(self.form, timed=True))
            file.setLevel(logging.INFO)
            self._waiting.setTarget(file)
            self._waiting.flush()
            logging.getLogger("headrace").addHandler(file)
            self._file = file
        self._release(self._waiting)

    def close(self) -> None:
        for handler in (self._waiting, self._file):
            if handler is not None:
                self._release(handler)

    def _release(self, handler: logging.Handler) -> None:
        logging.getLogger("headrace").removeHandler(handler)
        handler.close()


@contextmanager
def logging_to(form: LogFormat, level: int, *, timed: bool, told: frozenset[str] = frozenset()) -> Iterator[Logs]:
    """Log on standard error from `level` on. Events in `told` are left out there in text: the command prints them."""
    logger, shown = logging.getLogger("headrace"), logging.StreamHandler()
    shown.setFormatter(_formatter(form, timed))
    shown.setLevel(level)
    if form == "text":
        shown.addFilter(lambda record: getattr(record, "facts", {}).get("event") not in told)
    before = logger.level, logger.propagate
    logger.addHandler(shown)
    logger.setLevel(min(level, logging.INFO))
    logger.propagate = False
    logs = Logs(form)
    try:
        yield logs
    finally:
        logs.close()
        logger.removeHandler(shown)
        logger.level, logger.propagate = before


def _formatter(form: LogFormat, timed: bool) -> logging.Formatter:
    return JsonLines() if form == "json" else TextLines(timed)


def last_lines(directory: Path, count: int) -> list[str]:
    """The newest lines of the log file of a state directory, over all its parts, oldest first."""
    found: list[str] = []
    for number in range(KEPT_FILES + 1):
        path = directory / (FILE if number == 0 else f"{FILE}.{number}")
        if len(found) >= count or not path.exists():
            break
        found = path.read_text(encoding="utf-8", errors="replace").splitlines() + found
    return found[-count:] if count else []


def keep_previous(log: Path) -> None:
    """Move a log that is about to be written anew out of the way: after a crash it says what happened."""
    with suppress(OSError):
        if log.stat().st_size:
            os.replace(log, log.with_name(f"{log.name}.1"))
