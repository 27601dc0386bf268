"""Log lines as text or JSON, on standard error and in a file of the state directory.

Modules log with Python's `logging` under the name `headrace`. Fields for programs go next to the message:
`_log.info("...", extra=facts("epoch", stream="s", epoch=3))`. The commands `headrace run` and `headrace serve` set up
this module's handlers. A program that opens a hub itself configures `logging` as it likes.
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

from headrace.base.durable import private_opener
from headrace.base.printer import Printer
from headrace.errors import kind_of

LogFormat = Literal["text", "json"]
FILE = "hub.log"
SPARK_LOG = "spark.log"
SPARK_LOGS = 9  # older files that are kept of it
# Ten files hold about 100,000 epochs: a day of a busy stream.
FILE_BYTES, KEPT_FILES = 4 << 20, 9
# Records logged before the state directory is open; then they go to its log file.
WAITING_RECORDS = 1000
WRITE_SECONDS = 0.5  # for one line, so that lines and other output on standard error keep their order
# Events that `headrace run` prints itself, so their log lines are hidden in text.
PRINTED_BY_RUN = frozenset(
    {"pipeline_failed", "sink_detached", "stream_retrying", "stream_dead", "stream_running", "phase", "spark_ui"}
)
# Warnings that the live view shows for as long as they hold.
SHOWN_BY_VIEW = frozenset({"bad_rows", "file_left_out"})
# The log files of a state directory, and their contents.
FILES = {
    FILE: "the hub's epochs, failures and warnings",
    SPARK_LOG: "Spark's warnings and errors since its last start; spark.log.1 is of the run before",
    "spark.err": "what Spark's processes wrote to standard error; spark.err.1 is of the run before",
    "gateway.log": "errors of the gateway that receives pushed streams",
}


def facts(event: str, code: str | None = None, **values: Any) -> dict[str, Any]:
    """Fields for `extra`. `event` names the kind of line; `code` is an error code."""
    return {"facts": {"event": event, **({"code": code} if code else {}), **values}}


def code_of(text: str) -> str | None:
    """The error code at the start of `text`, or None if `text` is not an error of headrace."""
    kind = kind_of(text)
    return None if kind is None else kind.code


class JsonLogFormatter(logging.Formatter):
    """One JSON object per line: `time`, `level`, `logger`, `message`, and the fields from `facts`."""

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


class TextLogFormatter(logging.Formatter):
    """The level and the message. If `timed`, the line starts with the time."""

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


class _ToStandardError(logging.Handler):
    """Writes to what `sys.stderr` is at that moment: a live view replaces it, and puts the lines above itself. Threads
    of streams log, so a reader that does not read must not hold them up: then they wait once, for a moment, and lines
    may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self._printer = Printer("stderr", self._note, waiting=WAITING_RECORDS)

    def _note(self, count: int) -> str:
        said = f"{count} lines are not shown: standard error was not read in time"
        return f"{self.format(logging.LogRecord(__name__, logging.WARNING, __file__, 0, said, (), None))}\n"

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._printer.print(f"{self.format(record)}\n")
            self._printer.settle(WRITE_SECONDS)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        self._printer.close()
        super().close()


class LogOutput:
    """The handlers of this process's log lines. Created by `logging_to`. As text, standard error does not get lines
    with an event in `hidden`. `warned` has the texts of the warnings about bad rows and files so far."""

    def __init__(self, form: LogFormat, hidden: frozenset[str] = frozenset()) -> None:
        self.form, self.hidden = form, hidden
        self.warned: set[str] = set()
        self._waiting = MemoryHandler(WAITING_RECORDS, flushLevel=logging.CRITICAL + 1, flushOnClose=False)
        self._file: logging.Handler | None = None
        logging.getLogger("headrace").addHandler(self._waiting)

    def shows(self, record: logging.LogRecord) -> bool:
        """True if standard error gets this line."""
        event = getattr(record, "facts", {}).get("event")
        if event in SHOWN_BY_VIEW:
            self.warned.add(record.getMessage())
        return self.form == "json" or event not in self.hidden

    def keep(self, directory: Path) -> None:
        """Also write to the log file of a state directory that this process owns. Lines logged before this call are
        written too. If the file cannot be opened, the hub runs without it."""
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
def logging_to(
    form: LogFormat, level: int, *, timed: bool, hidden: frozenset[str] = frozenset()
) -> Iterator[LogOutput]:
    """Log to standard error from `level` up. As text, events in `hidden` are not shown there: the command prints them
    itself."""
    logger, shown = logging.getLogger("headrace"), _ToStandardError()
    shown.setFormatter(_formatter(form, timed))
    shown.setLevel(level)
    before = logger.level, logger.propagate
    logger.addHandler(shown)
    logger.setLevel(min(level, logging.INFO))
    logger.propagate = False
    logs = LogOutput(form, hidden)
    shown.addFilter(logs.shows)
    try:
        yield logs
    finally:
        logs.close()
        logger.removeHandler(shown)
        shown.close()
        logger.level, logger.propagate = before


def _formatter(form: LogFormat, timed: bool) -> logging.Formatter:
    return JsonLogFormatter() if form == "json" else TextLogFormatter(timed)


def last_lines(directory: Path, count: int) -> list[str]:
    """The newest lines of a state directory's log, across its rotated files, oldest first."""
    found: list[str] = []
    for number in range(KEPT_FILES + 1):
        path = directory / (FILE if number == 0 else f"{FILE}.{number}")
        if len(found) >= count or not path.exists():
            break
        found = path.read_text(encoding="utf-8", errors="replace").splitlines() + found
    return found[-count:] if count else []


def keep_previous(log: Path, kept: int = 1) -> None:
    """Rename a log file before a new one is written, and the `kept - 1` files before it. After a crash, the old file
    shows the cause."""
    with suppress(OSError):
        if not log.stat().st_size:
            return
        for number in range(kept, 0, -1):
            older = log if number == 1 else log.with_name(f"{log.name}.{number - 1}")
            if older.exists():
                os.replace(older, log.with_name(f"{log.name}.{number}"))
