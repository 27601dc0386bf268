"""Static tables that pipelines on the epoch host keep for a while (`static_refresh`), instead of reading every epoch.

A kept table is a copy in Spark's storage, under a temporary view of its own. Only the pipeline's query reads the copy:
the text of the query names the view. Spark's own table cache would also serve old rows to other queries of the session.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from headrace.model.program import SparkQuery
from headrace.spark.staged_input import quoted
from headrace.sql.hosts.text_edits import Edit


@dataclass(slots=True)
class _Kept:
    view: str
    frame: DataFrame
    read_at: float


class StaticTables:
    """The tables that the pipelines of one stream keep. Threads of several queries may call."""

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
            held = self._kept.get((instance, name))
            if held is None or time.monotonic() - held.read_at > seconds:
                began = time.monotonic()
                view = held.view if held is not None else f"__headrace_{instance}_static_{len(self._kept)}"
                frame = self._spark.sql(f"SELECT * FROM {name}").localCheckpoint(eager=True)
                frame.createOrReplaceTempView(view)
                held = self._kept[(instance, name)] = _Kept(view, frame, began)
            return held.view

    def forget(self, instances: set[int] | None = None) -> None:
        """Drop the copies of these instances; of all without an argument."""
        with self._lock:
            for key in [k for k in self._kept if instances is None or k[0] in instances]:
                self._spark.catalog.dropTempView(self._kept.pop(key).view)
