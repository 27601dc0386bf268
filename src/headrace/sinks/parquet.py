"""The parquet sink: writes a directory of Parquet files.

Unit of commit: the epoch (see `headrace.sinks.file_sink`). Guarantee: exactly once per epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.base.options import choice, option
from headrace.model.definitions import SinkDef
from headrace.model.schema import Schema
from headrace.sinks.file_sink import GUARANTEE, FileSink, FileTask
from headrace.sinks.joiners import ParquetJoiner
from headrace.sinks.outputs import output_of
from headrace.sinks.rolling import RollingSink, check_rolling, roll_age, roll_size, rolled_guarantee
from headrace.sinks.sink_kind import SinkKind
from headrace.sinks.sink_paths import STORE_SECRETS, FileSinkSettings, check_file_output, check_path

Compression = Literal["zstd", "snappy", "gzip", "lz4", "none"]


@dataclass(frozen=True, slots=True)
class ParquetSettings(FileSinkSettings):
    """The options of sinks that write Parquet files."""

    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] = option(
        choice(*get_args(Compression)), default="zstd", help="zstd (default), snappy, gzip, lz4 or none"
    )


@dataclass(frozen=True, slots=True)
class ParquetFileSettings(ParquetSettings):
    """The options of `type = 'parquet'`."""

    roll_size: int | None = roll_size()
    roll_age: int | None = roll_age()


def write_parquet(table: pa.Table, path: Path, *, compression: Compression) -> None:
    """Write timestamps as 64-bit microseconds (UTC-adjusted for TIMESTAMP) and decimals as in the schema, as Spark
    does."""
    pq.write_table(table, path, compression=compression, version="2.6", coerce_timestamps="us")


def _check(settings: ParquetFileSettings) -> None:
    check_rolling(settings)
    check_path(settings)


def _task(sink: SinkDef, settings: ParquetFileSettings) -> FileTask:
    write = partial(write_parquet, compression=settings.compression)
    return FileTask(output_of(settings), sink.name, write, partition_by=settings.partition_by)


def _driver(sink: SinkDef, settings: ParquetFileSettings, output: Schema) -> FileSink:
    if settings.roll_size is None and settings.roll_age is None:
        return FileSink(output_of(settings), sink.name, "parquet")
    joiner = ParquetJoiner(settings.compression)
    return RollingSink(
        output_of(settings),
        sink.name,
        extension="parquet",
        joiner=joiner,
        max_size=settings.roll_size,
        max_age=settings.roll_age,
    )


PARQUET = SinkKind(
    name="parquet",
    help="writes Parquet files into a directory",
    guarantee=GUARANTEE,
    settings=ParquetFileSettings,
    make_task=_task,
    make_driver=_driver,
    check_settings=_check,
    check_output=check_file_output,
    paths=("path",),
    task_secrets=STORE_SECRETS,
    guarantee_with=lambda settings: rolled_guarantee(settings.roll_size, settings.roll_age),
)
