"""Runs the demo: start Spark, run the script, add a pipeline half-way, show results, delete all files."""

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
from headrace.app.attending import attended
from headrace.app.interrupts import Interrupts
from headrace.app.view.displays import Display, LineDisplay, LiveDisplay, phases_to
from headrace.app.view.lines import status_lines
from headrace.app.view.live import draw
from headrace.base.text_tables import table_of
from headrace.hub.hub import Hub

# Seconds between redraws: often enough to look live, and nearly free.
_LIVE_PAUSE = 0.25
_LINE_PAUSE = 2.0
_ENDING = "ending the demo; Ctrl-C again to quit at once"


def script(name: str) -> str:
    """One of the demo's SQL scripts."""
    return resources.files(__package__ or "headrace.app.demo").joinpath(f"{name}.sql").read_text()


def show(duration: float, verbose: bool = False, master: str | None = None, console: Console | None = None) -> None:
    """Run the demo for about `duration` seconds. If Spark starts slowly, the demo takes longer: pipelines run for at
    least half of `duration`. Ctrl-C ends it early and cleanly."""
    out = console or Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as state, Interrupts(_ENDING) as interrupts:
        _show(
            Path(state) / "state",
            duration=duration,
            verbose=verbose,
            master=master,
            out=out,
            interrupts=interrupts,
        )


def _show(
    state: Path, *, duration: float, verbose: bool, master: str | None, out: Console, interrupts: Interrupts
) -> None:
    began = time.monotonic()
    with headrace.connect(state, master=master, verbose=verbose) as hub:
        phases: Display = LiveDisplay(out) if out.is_terminal else LineDisplay(out.print)
        with phases, phases_to(phases):
            attended(lambda: hub.sql(script("sensors")), phases.tick)
        if interrupts.asked.is_set():
            out.print("ended while starting")
            return
        out.print(f"three pipelines on one stream are running after {time.monotonic() - began:.0f} s")
        _watch(hub, out, max(began + duration, time.monotonic() + duration / 2), interrupts)
        decoded = {name: stream.status().columns_decoded for name, stream in hub.streams.items()}
        hub.drain()
        _results(hub, decoded, out)


def _watch(hub: Hub, out: Console, until: float, interrupts: Interrupts) -> None:
    """Show the status until the time is over. A fourth pipeline joins half-way."""
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


def _results(hub: Hub, decoded: dict[str, int], out: Console) -> None:
    for name, pipeline in hub.pipelines.items():
        rows = pipeline.results()
        newest = _rounded(rows.slice(max(0, rows.num_rows - 5)))
        out.print(table_of(newest, f"{name}: the last of {pipeline.status().rows_out:,} rows"))
    for name, stream in hub.streams.items():
        facts = stream.status()
        read = ", ".join([f"{facts.rows:,} rows", *facts.losses])
        out.print(
            f"{len(hub.pipelines)} pipelines shared one read of {read}; "
            f"{decoded[name]} of {facts.columns_declared} columns were decoded."
        )


def _rounded(rows: pa.Table) -> pa.Table:
    """Doubles rounded to two digits, which are easy to compare."""
    columns = [pc.round(c, 2) if pa.types.is_floating(c.type) else c for c in rows.columns]
    return pa.table(columns, names=rows.column_names)
