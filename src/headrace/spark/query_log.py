"""PySpark writes every query that Spark refuses to standard error. Threads that report the error themselves mute it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

from pyspark.logger import PySparkLogger

_muted = threading.local()


class _NotMuted(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(_muted, "on", False)


_FILTER = _NotMuted()


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """Mute PySpark's log of refused queries in this thread."""
    # A plain logger of this name would break PySpark, which passes arguments that only its own logger takes.
    PySparkLogger.getLogger("SQLQueryContextLogger").addFilter(_FILTER)
    _muted.on = True
    try:
        yield
    finally:
        _muted.on = False
