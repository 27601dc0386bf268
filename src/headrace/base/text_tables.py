"""Renders Arrow tables in a terminal, for the console sink, the command line and the demo."""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.base.python_values import python_values, with_time_texts


def table_of(data: pa.Table, title: str = "", most: int = 20, total: int | None = None) -> Group:
    """`title`, the first `most` rows of `data`, and a count of the rows left out of `total` (default: all of
    `data`)."""
    table = Table()
    for name in data.column_names:
        table.add_column(Text(name), overflow="fold")
    columns = [python_values(column) for column in data.slice(0, most).columns]
    for row in zip(*columns, strict=True):
        table.add_row(*(cell(value) for value in row))
    parts: list[RenderableType] = [Text(title, style="italic")] if title else []
    parts.append(table)
    left_out = (data.num_rows if total is None else total) - table.row_count
    if left_out > 0:
        parts.append(Text(f"({left_out:,} more rows left out)", style="dim"))
    return Group(*parts)


def cell(value: object) -> Text:
    """A value as plain text. Markup in it is not interpreted."""
    if value is None:
        return Text("NULL", style="dim")
    if isinstance(value, bool):
        return Text(str(value).lower())
    if isinstance(value, date) and not isinstance(value, datetime):
        return Text(value.isoformat())
    if isinstance(value, bytes):
        return Text(value.hex())
    return Text(str(with_time_texts(value)))
