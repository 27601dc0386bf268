"""The JSON types of the API's requests and answers, and functions that make them from the hub's objects.

`headrace.state.sealing` hides secrets in declarations, so answers contain none.
"""

from __future__ import annotations

import base64
import dataclasses
import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
from pydantic import BaseModel, Field, JsonValue

from headrace.base.python_values import python_values
from headrace.hub.results import Result
from headrace.model.program import PipelineProgram
from headrace.model.schema import Schema, field_at
from headrace.model.status import PipelineStatus, StreamStatus, StreamTotals

MAX_RESULT_BYTES = 16 << 20  # as Arrow; JSON is a few times larger


class Sql(BaseModel):
    """A script, or one statement, as text."""

    text: str = Field(min_length=1, examples=["SHOW PIPELINES"])


class ColumnInfo(BaseModel):
    """A column of a result: its name, and its type as Arrow spells it."""

    name: str
    type: str


class StatementResult(BaseModel):
    """The result of one statement: a message, or rows."""

    text: str = ""
    warnings: list[str] = Field(default=[], description="what the statement warns of")
    columns: list[ColumnInfo] | None = None
    rows: list[list[JsonValue]] | None = None
    arrow: str | None = Field(default=None, description="the rows as an Arrow stream, in base64, instead of `rows`")
    truncated: bool = Field(default=False, description="true if there are more rows than the limit")


class ScriptResult(BaseModel):
    """One result per statement, in order."""

    results: list[StatementResult]


class TableRows(BaseModel):
    """Rows of a table, oldest first."""

    columns: list[ColumnInfo]
    rows: list[list[JsonValue]]
    total: int = Field(description="the number of rows in the table; `rows` has the newest of them")


class ScriptCheck(BaseModel):
    """The answer for a script that has no errors."""

    ok: Literal[True] = True
    statements: int


class PlanText(BaseModel):
    """A plan as EXPLAIN prints it."""

    text: str


class SinkInfo(BaseModel):
    """A declared sink."""

    name: str
    type: str
    guarantee: str
    used_by: list[str]


class StreamInfo(BaseModel):
    """A stream: its declaration and its status."""

    name: str
    source: str
    format: str
    columns: list[ColumnInfo]
    event_time: str | None
    pipelines: list[str]
    addresses: list[str]
    create_sql: str
    status: dict[str, JsonValue]
    totals: dict[str, JsonValue] = Field(description="epochs, seconds by phase and sinks since the hub was opened")


class PipelineInfo(BaseModel):
    """A pipeline: its declaration and its status."""

    name: str
    stream: str
    sinks: list[str]
    sql: str
    family: str | None = Field(description="window and keys; pipelines of one family share one pass")
    memory_sink: bool = Field(description="true if the API can return its results")
    status: dict[str, JsonValue]


class Epoch(BaseModel):
    epoch: int


class SavepointInfo(BaseModel):
    name: str
    path: str


class SavepointRequest(BaseModel):
    name: str = Field(min_length=1)
    stream: str | None = Field(default=None, description="one stream; all when absent")


class Ready(BaseModel):
    """Every stream and pipeline that should run does. Otherwise the answer is a problem with code NOT_READY."""

    ready: Literal[True] = True


class Health(BaseModel):
    status: Literal["ok"] = "ok"
    version: str


def status_json(status: StreamStatus | PipelineStatus) -> dict[str, JsonValue]:
    """A status object as JSON, with its losses and warnings."""
    facts = {f.name: plain(getattr(status, f.name)) for f in dataclasses.fields(status)}
    return facts | {"losses": plain(status.losses), "warnings": plain(status.warnings)}


def totals_json(totals: StreamTotals) -> dict[str, JsonValue]:
    """Totals as JSON."""
    return {f.name: plain(getattr(totals, f.name)) for f in dataclasses.fields(totals)}


def family_label(program: PipelineProgram, schema: Schema) -> str | None:
    """The window and keys of a pipeline's family; None if the pipeline has no family."""
    if program.family is None:
        return None
    window = program.ring0.window
    size = "" if window is None else f"{window.kind} {window.size / 1e6:g} s"
    if window is not None and window.slide != window.size:
        size += f" every {window.slide / 1e6:g} s"
    keys = ", ".join(
        re.sub(r"\bc(\d+)\b", lambda c: field_at(schema, int(c[1])).name, k.sql) for k in program.ring0.keys
    )
    return f"{size or 'no window'}{f' by {keys}' if keys else ''}"


def plain(value: Any) -> JsonValue:
    """A value of a status or an Arrow table as JSON. Bytes become base64, times ISO 8601."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    return str(value)


def columns_of(table: pa.Table) -> list[ColumnInfo]:
    """The columns of an Arrow table."""
    return [ColumnInfo(name=f.name, type=str(f.type)) for f in table.schema]


def rows_of(table: pa.Table) -> list[list[JsonValue]]:
    """The rows of an Arrow table, as lists: columns may share a name, so dictionaries would lose values."""
    columns = [python_values(column) for column in table.columns]
    return [[plain(v) for v in row] for row in zip(*columns, strict=True)] if columns else []


def fitting(table: pa.Table, limit: int, *, newest: bool) -> pa.Table:
    """The newest or the first rows of a table: at most `limit` rows and about `MAX_RESULT_BYTES` bytes."""
    rows = min(limit, table.num_rows)
    if table.nbytes > MAX_RESULT_BYTES:
        rows = min(rows, max(1, table.num_rows * MAX_RESULT_BYTES // table.nbytes))
    return table.slice(table.num_rows - rows) if newest else table.slice(0, rows)


def newest(table: pa.Table, limit: int) -> TableRows:
    """The newest `limit` rows of a table."""
    kept = fitting(table, limit, newest=True)
    return TableRows(columns=columns_of(table), rows=rows_of(kept), total=table.num_rows)


def _stream_of(table: pa.Table) -> str:
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(buffer.getvalue()).decode()


def statement_result(result: Result, limit: int, *, arrow: bool = False) -> StatementResult:
    """The result of a statement with at most `limit` rows: as JSON, or with their types, as an Arrow stream."""
    table = result.table
    if table is None:
        return StatementResult(text=result.text, warnings=list(result.warnings))
    kept = fitting(table, limit, newest=False)
    return StatementResult(
        warnings=list(result.warnings),
        columns=columns_of(table),
        rows=None if arrow else rows_of(kept),
        arrow=_stream_of(kept) if arrow else None,
        truncated=table.num_rows > kept.num_rows,
    )
