"""The console sink: prints the first rows of every epoch as a small table.

Unit of commit: the epoch. Guarantee: at least once. An epoch that is run again after a crash is printed again. A slow
or closed reader never blocks a stream (`headrace.base.printer`): epochs that it does not read in time are skipped.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.options import integer, option
from headrace.base.printer import Printer
from headrace.model.definitions import SinkDef
from headrace.model.schema import Schema
from headrace.sinks.in_process import InProcessSink, joined, oldest_within, pack, unpack
from headrace.sinks.sink_kind import SinkKey, SinkKind, SinkSettings, Staged

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# Width in characters if standard output is not a terminal.
_PIPE_WIDTH = 200
_GUARANTEE = "at least once: printed again when an epoch is run again after a crash"


@dataclass(frozen=True, slots=True)
class ConsoleSettings(SinkSettings):
    """The options of `type = 'console'`."""

    max_rows: int = option(integer(1, 10_000), default=20, help="rows printed per epoch; the others are only counted")


class ConsoleTask:
    """Sends at most `max_rows` rows to the driver, and the number of all rows."""

    def __init__(self, sink: SinkDef, settings: ConsoleSettings) -> None:
        self._max_rows = settings.max_rows

    def stage(self, table: pa.Table, key: SinkKey) -> Staged:
        return Staged(table.num_rows, data=pack(oldest_within(table.slice(0, self._max_rows))))


def _merge_receipts(settings: ConsoleSettings, staged: list[Staged]) -> list[Staged]:
    """One receipt with the first `max_rows` rows of all receipts."""
    return joined(staged, lambda rows: oldest_within(rows.slice(0, settings.max_rows)))


class ConsoleSink(InProcessSink):
    """Prints to `console`, by default standard output. Prints an epoch at most once per process. `note` says why
    nothing is printed any more; empty if printing works. The status of the pipeline shows it."""

    guarantee = _GUARANTEE

    def __init__(
        self, sink: SinkDef, settings: ConsoleSettings, output: Schema, console: Console | None = None
    ) -> None:
        super().__init__()
        self.title = sink.name  # of each table; the committer puts the name of the pipeline before it
        self._schema = output.arrow
        self._max_rows = settings.max_rows
        self._console = console
        self._printer = Printer()

    def commit(self, key: SinkKey, staged: list[Staged]) -> int:
        repeated = self._seen.repeated(key)
        if repeated is not None:
            return repeated
        total = self._seen.add(key, staged)
        if total:
            from headrace.base.text_tables import table_of  # rich takes a while to import, and few processes print

            rows = pa.concat_tables([unpack(receipt.data).cast(self._schema) for receipt in staged])
            title = f"{self.title}, epoch {key.epoch}"
            table = table_of(rows, title, most=self._max_rows, total=total)
            if self._console is not None:
                self._console.print(table)
            else:
                self._printer.print(_text(table))
        return total

    @property
    def note(self) -> str:
        printer = self._printer
        return f"{printer.gone}; {printer.dropped} epochs were not shown" if printer.gone else ""

    def close(self) -> None:
        self._printer.close()


def _text(table: RenderableType) -> str:
    """Render `table` for standard output: in its width and colors if it is a terminal."""
    from rich.console import Console

    out = sys.stdout  # None if the process was started without one
    terminal = out is not None and not out.closed and out.isatty()
    console = Console(file=out, width=None if terminal else _PIPE_WIDTH)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


CONSOLE = SinkKind(
    name="console",
    help="prints the first rows of every epoch",
    guarantee=_GUARANTEE,
    settings=ConsoleSettings,
    make_task=ConsoleTask,
    make_driver=ConsoleSink,
    merge_receipts=_merge_receipts,
)
