"""`headrace run`: apply a script, then wait for its end, for Ctrl-C, or for the last pipeline to fail."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
from rich.console import Console

import headrace
from headrace.hub import Hub
from headrace.interrupts import Interrupts
from headrace.tables import table_of
from headrace.view.lines import pipelines_line

# How often a waiting run looks around: failures are told within this time; Ctrl-C is seen at once.
_PAUSE = 0.5


def run_script(text: str, *, until_end: bool, check: bool, state_dir: Path, master: str | None, verbose: bool) -> int:
    """Run `text` to its end or until Ctrl-C. Returns the exit code: 0, or 1 when a pipeline failed on the way."""
    with (
        Interrupts() as interrupts,
        headrace.connect(state_dir=state_dir, master=master, verbose=verbose) as hub,
    ):
        if check:
            hub.check(text)
        try:
            results = hub.sql(text)
        finally:
            interrupts.install()  # Spark has taken SIGINT while it started
        for result in results:
            _print(result)
        told = _wait(hub, interrupts, until_end)
        hub.drain()
        told |= _tell_failures(hub, told)
        if hub.pipelines:
            print(pipelines_line([p.status() for p in hub.pipelines.values()]), file=sys.stderr)
    return 1 if told else 0


def _wait(hub: Hub, interrupts: Interrupts, until_end: bool) -> set[str]:
    """Wait as `headrace run` promises. Returns the names of the pipelines whose failure was told."""
    told: set[str] = set()
    while not interrupts.asked.is_set():
        told |= _tell_failures(hub, told)
        if not any(p.status().state == "running" for p in hub.pipelines.values()):
            break
        if not until_end:
            interrupts.asked.wait(_PAUSE)
        elif hub.wait_until_end(timeout=_PAUSE):
            break
    return told


def _tell_failures(hub: Hub, told: set[str]) -> set[str]:
    """Print the error of every failed pipeline that was not told yet; returns their names."""
    failed = {name: status.error for name, p in hub.pipelines.items() if (status := p.status()).state == "failed"}
    for name in failed.keys() - told:
        print(f"pipeline {name} failed: {failed[name]}", file=sys.stderr)
    return set(failed)


def _print(result: object) -> None:
    """A statement's result: a table, a text, or something that renders itself."""
    if isinstance(result, pa.Table):
        Console().print(table_of(result, most=1000))
    elif result is not None:
        render = getattr(result, "render", None)
        print(render() if callable(render) else result)
