"""`headrace top`: the live view of a hub in another process, or the last status of a hub that does not run."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.live import Live

from headrace.app.view.lines import status_lines
from headrace.app.view.live import draw
from headrace.errors import HubUnreachable
from headrace.hub.observed import pipeline_status
from headrace.service.client import RemoteHub
from headrace.service.decoding import decode_sample
from headrace.service.offline import OfflineHub


def watch(server: str | None, state_dir: Path, console: Console | None = None, limit: int | None = None) -> None:
    """Redraw once a second until Ctrl-C, or `limit` times. Prints lines if the output is not a terminal. Raises
    HubUnreachable."""
    out = console or Console()
    try:
        hub = RemoteHub(server if server is not None else state_dir)
    except HubUnreachable:
        if server is not None:
            raise
        _show_last(state_dir, out)
        return
    live = Live(console=out, auto_refresh=False) if out.is_terminal else None
    shown = 0
    last: int | None = None
    with hub:
        try:
            if live is not None:
                live.start()
            while limit is None or shown < limit:
                for event in hub.events(last):
                    last = event["id"]
                    streams, pipelines = decode_sample(event)
                    if live is not None:
                        live.update(draw(streams, pipelines, f"{hub.address}; Ctrl-C quits"), refresh=True)
                    else:
                        for line in status_lines(streams, pipelines):
                            out.print(line, markup=False, highlight=False, soft_wrap=True)
                    shown += 1
                    if limit is not None and shown >= limit:
                        return
                time.sleep(0.5)  # the connection ended: connect again and continue after the last event
        finally:
            if live is not None:
                live.stop()


def _show_last(state_dir: Path, out: Console) -> None:
    """Print the last status from a state directory that no process owns. Raises MissingFile if it is not one."""
    hub = OfflineHub(state_dir)
    streams = [hub.runtime(name).status() for name in hub.catalog.streams]
    records = hub.catalog.pipelines.values()
    pipelines = [pipeline_status(record, hub.runtime(record.definition.program.stream)) for record in records]
    note = f"no hub runs on {state_dir}; this is the status of its last run"
    if out.is_terminal:
        out.print(draw(streams, pipelines, note))
        return
    for line in (*status_lines(streams, pipelines), note):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
