"""The DuckDB connection of the planner. It evaluates constants with the engine that runs the pipelines."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

import duckdb

from headrace.exec.kernels import install

MEMORY_LIMIT = "256MB"
_lock = threading.Lock()


@lru_cache(maxsize=8)
def _connection(time_zone: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": MEMORY_LIMIT})
    connection.execute("SET TimeZone=" + "'" + time_zone.replace("'", "''") + "'")
    install(connection)
    return connection


def evaluate(sql: str, time_zone: str) -> Any:
    """The value of a constant expression in the given time zone. Raises duckdb.Error. Thread-safe."""
    with _lock:
        row = _connection(time_zone).execute(f"SELECT {sql}").fetchone()
    assert row is not None
    return row[0]


@lru_cache(maxsize=8)
def knows_time_zone(time_zone: str) -> bool:
    """True if DuckDB knows the time zone."""
    try:
        evaluate("1", time_zone)
    except duckdb.Error:
        return False
    return True
