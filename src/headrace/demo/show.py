"""The demo's course: start Spark, run the script, let a pipeline join half-way, show results, leave nothing behind."""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from importlib import resources
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.live import Live

import headrace
from headrace.hub import Hub
from headrace.interrupts import Interrupts
from headrace.tables import table_of
from headrace.view.lines import status_lines
from headrace.view.live import draw

# Redraws a second: the eye sees them as live, and they cost next to nothing.
_LIVE_PAUSE = 0.25
_LINE_PAUSE = 2.0
_ENDING = "ending the demo; Ctrl-C again to quit at once"


def script(name: str) -> str:
    """One of the demo's SQL scripts."""
    return resources.files(__package__ or "headrace.demo").joinpath(f"{name}.sql").read_text()


def show(duration: float, verbose: bool = False, master: str | None = None, console: Console | None = None) -> None:
    """Run the demo for about `duration` seconds, at least half of them with pipelines running, however long Spark took
    to start. Ctrl-C ends it early and cleanly."""
    out = console or Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as state, Interrupts(_ENDING) as interrupts:
        try:
            _show(Path(state) / "state", duration, verbose, master, out, interrupts)
        except KeyboardInterrupt:  # Spark's own handler raises it while Spark starts
            out.print("ended while starting")


def _show(
    state: Path, duration: float, verbose: bool, master: str | None, out: Console, interrupts: Interrupts
) -> None:
    out.print("starting Spark inside this process ...")
    began = time.monotonic()
    with headrace.connect(state, master=master, verbose=verbose) as hub:
        try:
            hub.sql(script("sensors"))
        finally:
            interrupts.install()  # Spark has taken SIGINT while it started
        out.print(f"three pipelines on one stream are running after {time.monotonic() - began:.0f} s")
        _watch(hub, out, max(began + duration, time.monotonic() + duration / 2), interrupts)
        decoded = {name: stream.status().decoding_columns for name, stream in hub.streams.items()}
        hub.drain()
        _results(hub, decoded, out)


def _watch(hub: Hub, out: Console, until: float, interrupts: Interrupts) -> None:
    """Show the numbers until the time is over; a fourth pipeline joins half-way."""
    joins_at: float | None = (time.monotonic() + until) / 2
    live = Live(console=out, auto_refresh=False, transient=False) if out.is_terminal else None
    with ExitStack() as stack:
        if live is not None:
            stack.enter_context(live)
        while not interrupts.asked.is_set() and time.monotonic() < until:
            if joins_at is not None and time.monotonic() >= joins_at:
                joins_at = None
                hub.sql(script("joins_later"))
            left = max(0.0, until - time.monotonic())
            note = f"pipeline power joins half-way; {left:.0f} s left; Ctrl-C ends the demo"
            _show_once(hub, out, live, note)
            to_join = left if joins_at is None else joins_at - time.monotonic()
            interrupts.asked.wait(max(0.0, min(left, to_join, _LIVE_PAUSE if live is not None else _LINE_PAUSE)))


def _show_once(hub: Hub, out: Console, live: Live | None, note: str) -> None:
    streams = [stream.status() for stream in hub.streams.values()]
    pipelines = [pipeline.status() for pipeline in hub.pipelines.values()]
    if live is not None:
        live.update(draw(streams, pipelines, note), refresh=True)
        return
    for line in status_lines(streams, pipelines):
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _results(hub: Hub, decoded: dict[str, list[str]], out: Console) -> None:
    for name, pipeline in hub.pipelines.items():
        rows = pipeline.results()
        newest = _rounded(rows.slice(max(0, rows.num_rows - 5)))
        out.print(table_of(newest, f"{name}: the last of {pipeline.status().rows_out:,} rows"))
    for name, stream in hub.streams.items():
        facts = stream.status()
        read = ", ".join([f"{facts.rows:,} rows", *facts.losses])
        out.print(
            f"{len(hub.pipelines)} pipelines shared one reading of {read}; "
            f"{len(decoded[name])} of {facts.columns_declared} columns were decoded."
        )


def _rounded(rows: pa.Table) -> pa.Table:
    """Doubles with two digits: what a person compares at a glance."""
    columns = [pc.round(c, 2) if pa.types.is_floating(c.type) else c for c in rows.columns]
    return pa.table(columns, names=rows.column_names)
