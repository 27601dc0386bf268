"""What `hub.sql` gives back: one result per statement, readable as text, as Arrow, and in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Result:
    """`text` is the message, or empty when there is a `table`. `warnings` are what the user should know besides."""

    text: str = ""
    table: pa.Table | None = None
    warnings: tuple[str, ...] = ()

    def render(self) -> str:
        """For a terminal: the message, or the table with aligned columns, and then the warnings."""
        told = [f"  warning: {warning}" for warning in self.warnings]
        if self.table is None:
            return "\n".join([self.text, *told])
        names = self.table.column_names
        rows = [["" if v is None else str(v) for v in row.values()] for row in self.table.to_pylist()]
        widths = (
            [max(len(n), *(len(r[i]) for r in rows), 0) for i, n in enumerate(names)]
            if rows
            else [len(n) for n in names]
        )
        lines = ["  ".join(n.ljust(w) for n, w in zip(names, widths, strict=True)).rstrip()]
        lines += ["  ".join(v.ljust(w) for v, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        return "\n".join([*lines, *told])

    def __str__(self) -> str:
        return self.render()

    def _repr_html_(self) -> str:
        if self.table is None:
            return f"<pre>{html.escape(self.render())}</pre>"
        head = "".join(f"<th>{html.escape(n)}</th>" for n in self.table.column_names)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape('' if v is None else str(v))}</td>" for v in row.values()) + "</tr>"
            for row in self.table.to_pylist()
        )
        told = "".join(f"<p>warning: {html.escape(warning)}</p>" for warning in self.warnings)
        return f"<table><tr>{head}</tr>{body}</table>{told}"


def table_result(names: list[str], rows: list[list[object]], warnings: Iterable[str] = ()) -> Result:
    """A result from rows of plain values."""
    columns = [pa.array([None if r[i] is None else str(r[i]) for r in rows], pa.string()) for i in range(len(names))]
    return Result(table=pa.table(columns, names=names), warnings=tuple(warnings))
