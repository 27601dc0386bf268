"""The tsv sink: writes a directory of tab-separated files. The commit protocol is that of headrace's file sinks, so it
is exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv

from headrace.base.options import boolean, option
from headrace.model.definitions import SinkDef
from headrace.model.schema import Schema
from headrace.sinks.file_sink import GUARANTEE, FileSink, FileTask
from headrace.sinks.sink_kind import SinkKind
from headrace.sinks.sink_paths import FileSinkSettings, check_file_output, check_path


@dataclass(frozen=True, slots=True)
class TsvSettings(FileSinkSettings):
    """The options of `type = 'tsv'`: those of every file sink, and one more."""

    header: bool = option(boolean, default=True, help="begin each file with the names of the columns (default true)")


def write_tsv(table: pa.Table, path: Path, *, header: bool) -> None:
    """Write rows to a file. The file sink calls it in a task, and syncs the file."""
    csv.write_csv(table, path, csv.WriteOptions(include_header=header, delimiter="\t"))


def make_task(sink: SinkDef, settings: TsvSettings) -> FileTask:
    """The task side: stages rows."""
    write = partial(write_tsv, header=settings.header)
    return FileTask(Path(settings.path), sink.name, write, partition_by=settings.partition_by)


def make_driver(sink: SinkDef, settings: TsvSettings, output: Schema) -> FileSink:
    """The driver side: commits epochs."""
    return FileSink(Path(settings.path), sink.name, "tsv")


TSV = SinkKind(
    name="tsv",
    help="writes tab-separated files into a directory",
    guarantee=GUARANTEE,
    settings=TsvSettings,
    make_task=make_task,
    make_driver=make_driver,
    check_settings=check_path,
    check_output=check_file_output,
    paths=("path",),
)
