"""The jsonl sink: writes a directory of files with one JSON object per line, like Spark's JSON writer.

NULL fields are left out (`ignore_nulls = false` keeps them). Timestamps are ISO 8601 with milliseconds, or with
microseconds if they have any (Spark's writer would truncate them). Binary is base64. NaN and infinities are strings.

Unit of commit: the epoch (see `headrace.sinks.file_sink`). Guarantee: exactly once per epoch.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from headrace.base.options import boolean, choice, option
from headrace.exec.duck import quoted, run
from headrace.model.definitions import SinkDef
from headrace.model.program import Meaning
from headrace.model.schema import Schema
from headrace.sinks.file_sink import GUARANTEE, FileSink, FileTask
from headrace.sinks.in_process import oldest_within
from headrace.sinks.joiners import LineJoiner
from headrace.sinks.outputs import output_of
from headrace.sinks.rolling import RollingSink, check_rolling, roll_age, roll_size, rolled_guarantee
from headrace.sinks.sink_kind import SinkKind
from headrace.sinks.sink_paths import STORE_SECRETS, FileSinkSettings, check_file_output, check_path

# Rows, and bytes of rows, that are converted to text at once: this bounds the memory of a large epoch.
_CHUNK = 65_536
_CHUNK_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class JsonlSettings(FileSinkSettings):
    """The options of `type = 'jsonl'`."""

    ignore_nulls: bool = option(
        boolean, default=True, help="leave out fields that are NULL (default true, as Spark does)"
    )
    compression: Literal["none", "gzip"] = option(choice("none", "gzip"), default="none", help="none (default) or gzip")
    roll_size: int | None = roll_size()
    roll_age: int | None = roll_age()


def _write(table: pa.Table, path: Path, *, ignore_nulls: bool, compression: str) -> None:
    positional = table.rename_columns([f"c{i}" for i in range(table.num_columns)])
    fields = [(field.name, f"c{i}", field.type) for i, field in enumerate(table.schema)]
    sql = f"SELECT {json_object(fields, ignore_nulls, never_null(table), end=chr(10))} AS line FROM rows"
    with gzip.open(path, "wb") if compression == "gzip" else open(path, "wb") as out:
        start = 0
        while start < table.num_rows:
            piece = oldest_within(positional.slice(start, _CHUNK), _CHUNK_BYTES)
            start += piece.num_rows
            lines = run(Meaning(), sql, {"rows": piece})
            for chunk in lines.column(0).chunks:
                out.write(_bytes_of(chunk.cast(pa.large_string())))


def json_text(sql: str, kind: pa.DataType) -> str:
    """DuckDB SQL for the JSON text of a value, with all its NULL fields. NULL for NULL."""
    return _value(sql, kind, ignore_nulls=False)


def _bytes_of(lines: pa.Array[Any]) -> pa.Buffer:
    """The bytes of all strings, one after the other, without a copy: the content of the file."""
    _, offsets, data = lines.buffers()
    assert data is not None, "no line is empty, so there is text"
    ends = pa.Array.from_buffers(pa.int64(), len(lines) + 1, [None, offsets], offset=lines.offset)
    begin = ends[0].as_py()
    return data.slice(begin, ends[len(lines)].as_py() - begin)


def never_null(table: pa.Table) -> frozenset[str]:
    """The columns whose JSON text is never NULL in `table`."""
    plain = (pa.types.is_primitive, pa.types.is_string, pa.types.is_large_string, pa.types.is_decimal)
    return frozenset(
        field.name
        for field, column in zip(table.schema, table.columns, strict=True)
        if any(test(field.type) for test in plain) and not column.null_count
    )


def json_object(
    fields: list[tuple[str, str, pa.DataType]],
    ignore_nulls: bool,
    present: frozenset[str] = frozenset(),
    end: str = "",
) -> str:
    """DuckDB SQL for a JSON object with these fields (key, SQL of the value, type of the value). It is never NULL. The
    fields in `present` are known to be not NULL. `end` is added to the text."""
    keys = [json.dumps(name, ensure_ascii=False) + ":" for name, _, _ in fields]
    values = [_value(sql, kind, ignore_nulls) for _, sql, kind in fields]
    if not fields or (ignore_nulls and fields[0][0] not in present):
        members = [f"{quoted(key)} || {value}" for key, value in zip(keys, values, strict=True)]
        # concat_ws skips NULL members
        return f"'{{' || concat_ws(',', {', '.join(members) or 'NULL'}) || {quoted('}' + end)}"
    # One call with many arguments takes a third less than a call for each field. concat skips NULL arguments too.
    parts = []
    for i, (key, value, (name, _, _)) in enumerate(zip(keys, values, fields, strict=True)):
        begin = quoted(("," if i else "{") + key)
        if name in present:
            parts += [begin, value]
        else:
            parts += [f"{begin} || {value}"] if ignore_nulls else [begin, _or_null(value)]
    return f"concat({', '.join(parts)}, {quoted('}' + end)})"


def _value(sql: str, kind: pa.DataType, ignore_nulls: bool) -> str:
    """DuckDB SQL for the JSON text of a value, NULL for NULL."""
    if pa.types.is_struct(kind):
        fields = [(f.name, f"struct_extract({sql}, {quoted(f.name)})", f.type) for f in kind]
        return f"CASE WHEN {sql} IS NOT NULL THEN {json_object(fields, ignore_nulls)} END"
    if pa.types.is_map(kind):
        value = _value("e.value", kind.item_type, ignore_nulls)
        return f"'{{' || {_joined(f'map_entries({sql})', f'{_key(kind)} || {_or_null(value)}')} || '}}'"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"'[' || {_joined(sql, _or_null(_value('e', kind.value_type, ignore_nulls)))} || ']'"
    if pa.types.is_floating(kind):
        special = f"WHEN isnan({sql}) THEN '\"NaN\"' WHEN isinf({sql}) THEN CASE WHEN {sql} > 0 THEN "
        return f"CASE {special}'\"Infinity\"' ELSE '\"-Infinity\"' END ELSE CAST({sql} AS VARCHAR) END"
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return _plain(sql, kind)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _text(sql, kind, '"')  # nothing in it needs an escape
    return f"CAST(to_json({_text(sql, kind)}) AS VARCHAR)"


def _text(sql: str, kind: pa.DataType, quote: str = "") -> str:
    """DuckDB SQL for the text of a value that JSON writes as a string. Times get `quote` on both sides."""
    if pa.types.is_timestamp(kind):
        local, zone = (f"({sql} AT TIME ZONE 'UTC')", "Z") if kind.tz is not None else (sql, "")
        # strftime needs a constant format, so there are two
        short, long = (f"strftime({local}, '{quote}%Y-%m-%dT%H:%M:%S.{d}{zone}{quote}')" for d in ("%g", "%f"))
        return f"CASE WHEN microsecond({local}) % 1000 = 0 THEN {short} ELSE {long} END"
    if pa.types.is_date(kind):
        return f"strftime({sql}, '{quote}%Y-%m-%d{quote}')"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f"base64({sql})"
    return _plain(sql, kind)


def _plain(sql: str, kind: pa.DataType) -> str:
    """DuckDB SQL for DuckDB's text of a value. A decimal gets a digit before the point, which JSON demands."""
    text = f"CAST({sql} AS VARCHAR)"
    if pa.types.is_decimal(kind) and kind.precision == kind.scale:
        return f"replace('0' || {text}, '0-', '-0')"
    return text


def _key(kind: pa.MapType[Any, Any, Any]) -> str:
    return f"CAST(to_json({_text('e.key', kind.key_type)}) AS VARCHAR) || ':'"


def _or_null(sql: str) -> str:
    return f"coalesce({sql}, 'null')"


def _joined(items: str, item: str) -> str:
    """DuckDB SQL that joins the text `item` of each element `e` of the list `items` with commas."""
    return f"array_to_string(list_transform({items}, lambda e: {item}), ',')"


def _check(settings: JsonlSettings) -> None:
    check_rolling(settings)
    check_path(settings)


def _task(sink: SinkDef, settings: JsonlSettings) -> FileTask:
    write = partial(_write, ignore_nulls=settings.ignore_nulls, compression=settings.compression)
    return FileTask(output_of(settings), sink.name, write, partition_by=settings.partition_by)


def _driver(sink: SinkDef, settings: JsonlSettings, output: Schema) -> FileSink:
    extension = "jsonl" if settings.compression == "none" else "jsonl.gz"
    if settings.roll_size is None and settings.roll_age is None:
        return FileSink(output_of(settings), sink.name, extension)
    joiner = LineJoiner(settings.compression == "gzip")
    return RollingSink(
        output_of(settings),
        sink.name,
        extension=extension,
        joiner=joiner,
        max_size=settings.roll_size,
        max_age=settings.roll_age,
    )


JSONL = SinkKind(
    name="jsonl",
    help="writes files with one JSON object per line into a directory",
    guarantee=GUARANTEE,
    settings=JsonlSettings,
    make_task=_task,
    make_driver=_driver,
    check_settings=_check,
    check_output=check_file_output,
    paths=("path",),
    task_secrets=STORE_SECRETS,
    guarantee_with=lambda settings: rolled_guarantee(settings.roll_size, settings.roll_age),
)
