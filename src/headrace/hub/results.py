"""The result of a statement, readable as text, as an Arrow table, and in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base.python_values import python_rows, with_time_texts

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType


@dataclass(frozen=True)
class Result:
    """A message in `text`, or a `table`. `warnings` are for the user to read. Python's prompt, IPython, notebooks and
    rich show the message or the table.

    >>> table_result(["name", "rows"], [["sensors", 1200], ["clicks", 7]])
    name     rows
    sensors  1200
    clicks      7
    """

    text: str = ""
    table: pa.Table | None = None
    warnings: tuple[str, ...] = ()

    def render(self) -> str:
        """The message, or the table with aligned columns, followed by the warnings.

        >>> print(hub.sql("SHOW SINKS")[0].render())
        name     type ...
        """
        warnings = [f"  warning: {warning}" for warning in self.warnings]
        if self.table is None:
            return "\n".join([self.text, *warnings])
        names = self.table.column_names
        rows = [[shown(v) for v in row.values()] for row in python_rows(self.table)]
        right = [_is_number(field.type) for field in self.table.schema]
        widths = (
            [max(len(n), *(len(r[i]) for r in rows), 0) for i, n in enumerate(names)]
            if rows
            else [len(n) for n in names]
        )
        lines = [
            "  ".join(_aligned(*cell) for cell in zip(r, widths, right, strict=True)).rstrip() for r in [names, *rows]
        ]
        return "\n".join([*lines, *warnings])

    def show(self) -> None:
        """Print it, like a DataFrame.

        >>> hub.sql("SHOW SINKS")[0].show()
        name     type ...
        """
        print(self.render())

    def toPandas(self) -> pd.DataFrame:
        """The table as a pandas DataFrame; one without columns if there is only a message.

        >>> hub.sql("SHOW PIPELINES")[0].toPandas()["name"].tolist()
        ['hot', 'by_minute', 'warm']
        """
        return (pa.table({}) if self.table is None else self.table).to_pandas()

    def __str__(self) -> str:
        return self.render()

    def __repr__(self) -> str:
        return self.render()

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        from headrace.base.text_tables import table_of

        if self.table is None:
            return Text(self.render())
        return Group(table_of(self.table), *(Text(f"warning: {w}", style="yellow") for w in self.warnings))

    def _repr_html_(self) -> str:
        if self.table is None:
            return f"<pre>{html.escape(self.render())}</pre>"
        head = "".join(f"<th>{html.escape(n)}</th>" for n in self.table.column_names)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(shown(v))}</td>" for v in row.values()) + "</tr>"
            for row in python_rows(self.table)
        )
        warnings = "".join(f"<p>warning: {html.escape(warning)}</p>" for warning in self.warnings)
        return f"<table><tr>{head}</tr>{body}</table>{warnings}"


def shown(value: object) -> str:
    """A value in a table: times as in JSON, numbers with at most three digits after the point.

    >>> shown(None), shown(0.1 + 0.2), shown(datetime(2026, 1, 1, 12, 0, 0, 5)), shown(["a", "b"])
    ('', '0.3', '2026-01-01T12:00:00.000005', 'a, b')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{round(value, 3):g}" if abs(value) < 1e6 else f"{value:.0f}"
    if isinstance(value, list):
        return ", ".join(map(str, with_time_texts(value)))
    return str(with_time_texts(value))


def _aligned(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def table_result(
    names: list[str],
    rows: list[list[object]],
    warnings: Iterable[str] = (),
    kinds: Mapping[str, pa.DataType] | None = None,
) -> Result:
    """A table result from rows of plain values. Columns have the type of their values, or the one in `kinds` (for
    columns without values). A column of mixed values becomes text."""
    columns = [_column([r[i] for r in rows], (kinds or {}).get(name)) for i, name in enumerate(names)]
    return Result(table=pa.table(columns, names=names), warnings=tuple(warnings))


def _column(values: list[object], kind: pa.DataType | None) -> pa.Array[Any]:
    if kind is not None:
        return pa.array(values, kind)
    if values and all(v is None or type(v) in (int, float, str, bool, datetime) for v in values):
        types = {type(v) for v in values if v is not None}
        if len(types) == 1 and types != {str}:
            return pa.array(values)
    return pa.array([None if v is None else shown(v) for v in values], pa.string())
