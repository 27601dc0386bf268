"""Results of statements as text: tables to read, JSON and CSV for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Literal

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.base.python_values import python_rows, python_values
from headrace.hub.results import Result, shown
from headrace.service.models import plain

OutputFormat = Literal["table", "json", "csv"]


def printed(results: Sequence[Result], how: OutputFormat, terminal: bool = False) -> str:
    """`results` in order. JSON is one list with an entry per result. CSV has a header line per table. Tables have lines
    and colours on a `terminal`; elsewhere they are aligned columns of plain text. CSV of a table has no place for its
    warnings."""
    if how == "json":
        return json.dumps([_entry(r) for r in results], indent=2)
    if how == "csv":
        return "\n".join(_csv(r) for r in results)
    return "\n".join(_drawn(r) if terminal and r.table is not None else r.render() for r in results)


def _drawn(result: Result) -> str:
    assert result.table is not None
    table = Table(box=box.SIMPLE_HEAD, header_style="bold cyan", pad_edge=False)
    for field in result.table.schema:
        table.add_column(Text(field.name), justify="right" if _is_number(field.type) else "left", overflow="fold")
    for row in zip(*map(python_values, result.table.columns), strict=True):
        table.add_row(*(Text(shown(v)) for v in row))
    console = Console(force_terminal=True, highlight=False)
    with console.capture() as captured:
        console.print(table)
        for warning in result.warnings:
            console.print(Text(f"warning: {warning}", style="yellow"))
    return captured.get().rstrip("\n")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _entry(result: Result) -> object:
    warnings: dict[str, object] = {"warnings": list(result.warnings)} if result.warnings else {}
    if result.table is None:
        return {"text": result.text} | warnings
    return {"rows": [{k: plain(v) for k, v in row.items()} for row in python_rows(result.table)]} | warnings


def _csv(result: Result) -> str:
    if result.table is None:
        return result.render()
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(result.table.column_names)
    for row in zip(*map(python_values, result.table.columns), strict=True):
        writer.writerow(["" if v is None else plain(v) for v in row])
    return buffer.getvalue().rstrip("\n")
