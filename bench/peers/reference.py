"""The one reference: every query by itself in DuckDB, over the same files. Outputs of all systems are compared with it.

Rows are compared as multisets, cell by cell. Spark's streams leave the newest windows open at the end of their input,
so of its output exactly the rows are expected that the watermark has closed.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

from bench.peers.queries import DUCKDB_TYPES, Query
from bench.peers.run_duckdb import relation
from bench.peers.workloads import Workload

DELAY = "INTERVAL 1 SECOND"


class Reference:
    """The expected rows of the first `count` queries of a workload over `files`."""

    def __init__(self, workload: Workload, count: int, files: list[Path]) -> None:
        self._workload, self._queries = workload, workload.first(count)
        self._database = duckdb.connect()
        source = relation(workload, count, files)
        self._database.execute(f"CREATE TABLE s AS SELECT * FROM {source}")
        for number, query in enumerate(self._queries):
            columns = ", ".join(f'CAST("{name}" AS {DUCKDB_TYPES[kind]}) AS "{name}"' for name, kind in query.output)
            self._database.execute(f"CREATE TABLE expected{number} AS SELECT {columns} FROM ({query.duckdb})")

    def rows(self) -> int:
        """The rows of all queries."""
        return sum(self._count(f"FROM expected{number}") for number in range(len(self._queries)))

    def differences(self, out: Path, count: int, closed_only: bool) -> list[str]:
        """What is wrong with the outputs of the first `count` queries in `out`, a line for each that differs."""
        found = []
        for number, query in enumerate(self._queries[:count]):
            expected = f"expected{number}"
            if closed_only and query.closes_after is not None:
                newest = f'(SELECT max("{self._workload.time}") FROM s) - {DELAY}'
                late = "<" if query.closes_after.startswith("ended") else "<="  # a session must have been passed
                expected = f"(FROM expected{number} WHERE {query.closes_after} {late} {newest})"
            got = self._read(out / str(number), query)
            missing = self._count(f"(FROM {expected} EXCEPT ALL FROM {got})")
            extra = self._count(f"(FROM {got} EXCEPT ALL FROM {expected})")
            if missing or extra:
                total = self._count(f"FROM {expected}")
                found.append(f"{query.name}: {missing} of {total} rows missing, {extra} rows that should not be")
        return found

    def close(self) -> None:
        self._database.close()

    def _read(self, directory: Path, query: Query) -> str:
        """A relation over the files that a system has written, as `expected` has them."""
        files = [path for path in directory.rglob("*") if path.is_file() and _visible(path.relative_to(directory))]
        columns = ", ".join(f'CAST("{name}" AS {DUCKDB_TYPES[kind]}) AS "{name}"' for name, kind in query.output)
        if not files:
            return f"(FROM (SELECT {columns} FROM ({query.duckdb})) LIMIT 0)"
        names = "[" + ", ".join(f"'{path}'" for path in files) + "]"
        if files[0].suffix == ".parquet":
            return f"(SELECT {columns} FROM read_parquet({names}))"
        types = ", ".join(f"'{name}': '{DUCKDB_TYPES[kind]}'" for name, kind in query.output)
        return f"(SELECT {columns} FROM read_json({names}, format = 'newline_delimited', columns = {{{types}}}))"

    def _count(self, relation: str) -> int:
        text = relation if relation.startswith("FROM") else f"FROM {relation}"
        return int(self._database.execute(f"SELECT count(*) {text}").fetchall()[0][0])


def _visible(path: Path) -> bool:
    return not any(part.startswith((".", "_")) for part in path.parts) and path.suffix != ".crc"
