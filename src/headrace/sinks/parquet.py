"""The parquet sink: a directory of Parquet files that Spark, pandas, DuckDB and others read.

Unit of commit: the epoch (see `headrace.sinks.files`). Guarantee: exactly once per epoch.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.base.options import Option, choice, text
from headrace.model.program import SinkDef
from headrace.model.schema import Schema
from headrace.sinks.base import SinkKind
from headrace.sinks.files import GUARANTEE, FileSink, FileTask, check_directory

Compression = Literal["zstd", "snappy", "gzip", "lz4", "none"]
_OPTIONS = (
    Option("path", text, required=True, help="the directory to write to; made when needed"),
    Option(
        "compression",
        choice(*get_args(Compression)),
        default="zstd",
        help="zstd (default), snappy, gzip, lz4 or none",
    ),
)


def _write(table: pa.Table, path: Path, *, compression: Compression) -> None:
    """Timestamps as 64-bit microseconds (UTC-adjusted for TIMESTAMP), decimals as in the schema: what Spark writes."""
    pq.write_table(table, path, compression=compression, version="2.6", coerce_timestamps="us")


def _task(sink: SinkDef) -> FileTask:
    values = PARQUET.values(sink.options)
    return FileTask(Path(values["path"]), sink.name, partial(_write, compression=values["compression"]))


def _driver(sink: SinkDef, output: Schema) -> FileSink:
    return FileSink(Path(PARQUET.values(sink.options)["path"]), sink.name, "parquet")


PARQUET = SinkKind(
    name="parquet",
    help="writes Parquet files into a directory",
    guarantee=GUARANTEE,
    options=_OPTIONS,
    task=_task,
    driver=_driver,
    check_values=check_directory,
    paths=("path",),
)
