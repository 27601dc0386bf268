"""DuckDB in one pass over the bytes: no stream, no state to recover. The ceiling of what the machine can do.

One family is one statement over the files, with filtered aggregates. Otherwise the needed columns are read once into a
table, and there is one statement per family and per stateless query.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import duckdb

from bench.peers.queries import Query, one_pass
from bench.peers.worker import Mark, serve
from bench.peers.workloads import Workload

TYPES = {"STRING": "VARCHAR", "INT": "INTEGER"}


class DuckDB:
    """A database in memory with as many threads as cores."""

    def __init__(self) -> None:
        self._database = duckdb.connect(config={"threads": os.cpu_count() or 1})

    def versions(self) -> dict[str, str]:
        return {"duckdb": duckdb.__version__}

    def check(self, workload: Workload, count: int, files: list[Path], out: Path) -> None:
        queries = workload.first(count)
        statements, table = self._statements(workload, queries, files)
        families = [q.family for q in queries if q.family is not None]
        distinct = list(dict.fromkeys(families))
        for number, text in enumerate(statements):
            self._database.execute(f"CREATE OR REPLACE TEMP TABLE r{number} AS {text}")
        alone = len(distinct)
        for number, query in enumerate(queries):
            (out / str(number)).mkdir(parents=True)
            if query.family is None:
                text, alone = f"SELECT * FROM r{alone}", alone + 1
            else:
                keys = ", ".join(f'"{key}"' for key in query.family.keys)
                values = ", ".join(f"c{number}_{name} AS {name}" for name, _, _ in query.family.aggregates)
                text = f"SELECT started, {keys}, {values} FROM r{distinct.index(query.family)} WHERE c{number}_here > 0"
            self._database.execute(f"COPY ({text}) TO '{out / str(number)}/rows.parquet'")
        self._drop(table)

    def time(
        self, workload: Workload, count: int, warm: list[Path], measured: list[Path], place: Path, mark: Mark
    ) -> float:
        queries = workload.first(count)
        for files, measuring in ((warm, False), (measured, True)):
            if measuring:
                mark("begin")
            began = time.monotonic()
            statements, table = self._statements(workload, queries, files)
            for text in statements:
                self._database.sql(text).to_arrow_table()
            self._drop(table)
        seconds = time.monotonic() - began
        mark("end")
        return seconds

    def close(self) -> None:
        self._database.close()

    def _statements(self, workload: Workload, queries: list[Query], files: list[Path]) -> tuple[list[str], bool]:
        source = relation(workload, len(queries), files)
        one = queries[0].family is not None and all(q.family == queries[0].family for q in queries)
        if not one:
            self._database.execute(f"CREATE TEMP TABLE decoded AS SELECT * FROM {source}")
            source = "decoded"
        return one_pass(queries, source, workload.time), not one

    def _drop(self, table: bool) -> None:
        if table:
            self._database.execute("DROP TABLE decoded")


def relation(workload: Workload, count: int, files: list[Path]) -> str:
    """The files as a relation of the columns that the first `count` queries need."""
    columns = ", ".join(f"'{name}': '{TYPES.get(kind, kind)}'" for name, kind in workload.needed(count))
    names = ", ".join(f"'{path}'" for path in files)
    return f"read_json([{names}], format = 'newline_delimited', columns = {{{columns}}})"


if __name__ == "__main__":
    serve(DuckDB)
