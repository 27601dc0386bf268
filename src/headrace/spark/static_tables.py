"""Static tables that pipelines on the epoch host keep for a while (`static_refresh`), instead of reading every epoch.

A kept table is a copy in Spark's storage, under a temporary view of its own. Only the pipeline's query reads the copy:
the text of the query names the view. Spark's own table cache would also serve old rows to other queries of the session.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from headrace.model.program import SparkQuery
from headrace.spark.staged_input import quoted
from headrace.sql.hosts.text_edits import Edit


@dataclass(slots=True)
class _Kept:
    """A table of one pipeline. Several hubs may share a session, so the name of its view is unique."""

    view: str = field(default_factory=lambda: f"__headrace_{uuid.uuid4().hex}")
    frame: DataFrame | None = None
    read_at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class StaticTables:
    """The tables that the pipelines of one stream keep. Threads of several queries may call; a table that takes long to
    read holds up only the queries that read it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._lock = threading.Lock()
        self._kept: dict[tuple[int, str], _Kept] = {}

    def edits(self, instance: int, query: SparkQuery) -> list[Edit]:
        """Edits of the query's text that read the kept copies. Reads the tables that are too old."""
        if query.refresh_us is None:
            return []
        found: list[Edit] = []
        for start, end, name, alias in query.tables:
            view = self._view(instance, name, query.refresh_us / 1e6)
            found.append((start, end, quoted(view) + (f" AS {quoted(alias)}" if alias else "")))
        return found

    def _view(self, instance: int, name: str, seconds: float) -> str:
        with self._lock:
            held = self._kept.setdefault((instance, name), _Kept())
        with held.lock:
            if held.frame is None or time.monotonic() - held.read_at > seconds:
                began = time.monotonic()
                frame = self._spark.sql(f"SELECT * FROM {name}").localCheckpoint(eager=True)
                frame.createOrReplaceTempView(held.view)
                held.frame, held.read_at = frame, began
        return held.view

    def forget(self, instances: set[int] | None = None) -> None:
        """Drop the copies of these instances; of all without an argument."""
        with self._lock:
            for key in [k for k in self._kept if instances is None or k[0] in instances]:
                self._spark.catalog.dropTempView(self._kept.pop(key).view)
