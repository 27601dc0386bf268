"""Joins files of one kind, for sinks that roll (`headrace.sinks.rolling`)."""

from __future__ import annotations

import gzip
import itertools
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

GROUP_ROWS, GROUP_BYTES = 1 << 20, 64 << 20  # of a row group of a joined Parquet file


class LineJoiner:
    """Files of lines, each a row."""

    def __init__(self, compressed: bool) -> None:
        self._compressed = compressed

    def rows(self, path: Path) -> int:
        with self._open(path) as file:
            return sum(1 for _ in file)

    def join(self, paths: Sequence[Path], to: Path, rows: int | None = None) -> None:
        if rows is None:  # gzip files one after the other are a gzip file
            with open(to, "wb") as out:
                for path in paths:
                    with open(path, "rb") as file:
                        shutil.copyfileobj(file, out, 1 << 20)
            return
        with gzip.open(to, "wb") if self._compressed else open(to, "wb") as out:
            for path in paths:
                with self._open(path) as file:
                    out.writelines(itertools.islice(file, rows))

    def _open(self, path: Path) -> Any:
        return gzip.open(path, "rb") if self._compressed else open(path, "rb")


class ParquetJoiner:
    """Parquet files. A joined file has row groups of the usual size, whatever its parts had."""

    def __init__(self, compression: str) -> None:
        self._compression = compression

    def rows(self, path: Path) -> int:
        return pq.read_metadata(path).num_rows

    def join(self, paths: Sequence[Path], to: Path, rows: int | None = None) -> None:
        schema = pq.read_schema(paths[0])
        options: Any = {"compression": self._compression, "version": "2.6", "coerce_timestamps": "us"}
        with pq.ParquetWriter(to, schema, **options) as writer:
            for table in _groups(_batches(paths), schema, rows):
                writer.write_table(table, row_group_size=GROUP_ROWS)


def _batches(paths: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches()


def _groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema, rows: int | None) -> Iterator[pa.Table]:
    kept: list[pa.RecordBatch] = []
    left = rows
    for batch in batches:
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        kept.append(batch)
        if sum(b.num_rows for b in kept) >= GROUP_ROWS or sum(b.nbytes for b in kept) >= GROUP_BYTES:
            yield pa.Table.from_batches(kept, schema)
            kept = []
        if left == 0:
            break
    if kept:
        yield pa.Table.from_batches(kept, schema)
