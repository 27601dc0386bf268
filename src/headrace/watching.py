"""`headrace top`: the live view of a hub that another process owns, or the last facts of one that nobody runs."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.live import Live

from headrace.errors import HubUnreachable
from headrace.service.client import RemoteHub, statuses
from headrace.service.offline import OfflineHub
from headrace.view.lines import status_lines
from headrace.view.live import draw


def watch(server: str | None, state_dir: Path, console: Console | None = None, limit: int | None = None) -> None:
    """Redraw once a second until Ctrl-C, or `limit` times. In a pipe, print lines instead. Raises HubUnreachable."""
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
                try:
                    for event in hub.events(last):
                        last = event["id"]
                        streams, pipelines = statuses(event)
                        if live is not None:
                            live.update(draw(streams, pipelines, f"{hub.address}; Ctrl-C leaves"), refresh=True)
                        else:
                            for line in status_lines(streams, pipelines):
                                out.print(line, markup=False, highlight=False, soft_wrap=True)
                        shown += 1
                        if limit is not None and shown >= limit:
                            return
                except HubUnreachable:
                    raise
                time.sleep(0.5)  # the connection ended: come back, and go on after the last event
        finally:
            if live is not None:
                live.stop()


def _show_last(state_dir: Path, out: Console) -> None:
    """What a state directory says that no process owns. Raises MissingFile when it is none."""
    hub = OfflineHub(state_dir)
    streams = [stream.status() for stream in hub.streams.values()]
    pipelines = [pipeline.status() for pipeline in hub.pipelines.values()]
    note = f"no process runs the hub in {state_dir}: this is from its last run"
    if out.is_terminal:
        out.print(draw(streams, pipelines, note))
        return
    for line in (*status_lines(streams, pipelines), note):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
