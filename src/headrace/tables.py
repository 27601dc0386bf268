"""Arrow tables as terminal tables: used by the console sink, the command line and the demo."""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
from rich.table import Table
from rich.text import Text


def table_of(data: pa.Table, title: str = "", most: int = 20, total: int | None = None) -> Table:
    """The first `most` rows of `data`; the caption says how many of `total` (default: all of `data`) were left out."""
    left_out = (data.num_rows if total is None else total) - min(most, data.num_rows)
    table = Table(title=Text(title) if title else None, title_justify="left", caption_justify="left")
    if left_out > 0:
        table.caption = f"({left_out:,} more rows left out)"
    for name in data.column_names:
        table.add_column(Text(name), overflow="fold")
    columns = [column.to_pylist() for column in data.slice(0, most).columns]
    for row in zip(*columns, strict=True):
        table.add_row(*(cell(value) for value in row))
    return table


def cell(value: object) -> Text:
    """A value as text, never as markup."""
    if value is None:
        return Text("NULL", style="dim")
    if isinstance(value, bool):
        return Text(str(value).lower())
    if isinstance(value, datetime):
        return Text(value.isoformat(sep=" "))
    if isinstance(value, date):
        return Text(value.isoformat())
    if isinstance(value, bytes):
        return Text(value.hex())
    return Text(str(value))
