"""The console sink: prints the first rows of every epoch as a small table.

Unit of commit: the epoch. Guarantee: at least once; an epoch that is run again after a crash is printed again.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.options import Option, integer
from headrace.program import SinkDef
from headrace.schema import Schema
from headrace.sinks.base import SinkKey, SinkKind, Staged
from headrace.sinks.collected import NewestEpoch, pack, unpack

_OPTIONS = (
    Option("max_rows", integer(1, 10_000), default=20, help="rows that are printed per epoch; the rest is counted"),
)
_GUARANTEE = "at least once: printed again when an epoch is run again after a crash"


class ConsoleTask:
    """Sends at most `max_rows` rows to the driver, and the number of all."""

    def __init__(self, sink: SinkDef) -> None:
        self._max_rows: int = CONSOLE.values(sink.options)["max_rows"]

    def stage(self, table: pa.Table, key: SinkKey) -> Staged:
        return Staged(table.num_rows, data=pack(table.slice(0, self._max_rows)))


class ConsoleSink:
    """Prints to `console`, by default standard output. Every epoch at most once while the process lives."""

    guarantee = _GUARANTEE

    def __init__(self, sink: SinkDef, output: Schema, console: Console | None = None) -> None:
        self._name = sink.name
        self._names = output.names
        self._max_rows: int = CONSOLE.values(sink.options)["max_rows"]
        self._console = console
        self._seen = NewestEpoch()

    def commit(self, key: SinkKey, staged: list[Staged]) -> int:
        repeated = self._seen.repeated(key)
        if repeated is not None:
            return repeated
        total = self._seen.add(key, staged)
        if total:
            rows: list[tuple[Any, ...]] = []
            for receipt in staged:
                if len(rows) < self._max_rows:
                    table = unpack(receipt.data).slice(0, self._max_rows - len(rows))
                    rows += zip(*(column.to_pylist() for column in table.columns), strict=True)
            self._print(key, rows, total)
        return total

    def _print(self, key: SinkKey, rows: list[tuple[Any, ...]], total: int) -> None:
        # Made late: whoever redirects standard output after the sink was created still gets the rows.
        console = self._console or Console(soft_wrap=False)
        if self._console is None and not console.is_terminal:
            console = Console(width=200)
        table = Table(title=f"{self._name}, epoch {key.epoch}", title_justify="left")
        for name in self._names:
            table.add_column(Text(name), overflow="fold")
        for row in rows:
            table.add_row(*(_cell(value) for value in row))
        console.print(table)
        if total > len(rows):
            console.print(Text(f"({total - len(rows):,} more rows of this epoch left out)"))

    def close(self) -> None:
        """Nothing to release."""


def _cell(value: object) -> Text:
    if value is None:
        return Text("NULL", style="dim")
    if isinstance(value, datetime):
        return Text(value.isoformat(sep=" "))
    if isinstance(value, date):
        return Text(value.isoformat())
    if isinstance(value, bytes):
        return Text(value.hex())
    if isinstance(value, bool):
        return Text(str(value).lower())
    return Text(str(value))


CONSOLE = SinkKind(
    name="console",
    help="prints the first rows of every epoch",
    guarantee=_GUARANTEE,
    options=_OPTIONS,
    task=ConsoleTask,
    driver=ConsoleSink,
)
