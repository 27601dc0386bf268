"""The demo with a fake hub: its output, and when it ends."""

from __future__ import annotations

import io
import time
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from headrace.app.check import check_script
from headrace.app.demo import show
from headrace.app.interrupts import Interrupts
from tests.app.test_view import STREAM, pipeline


class PretendedHub:
    """Answers like a hub, and records the scripts it is given."""

    def __init__(self) -> None:
        self.scripts: list[str] = []
        rows = pa.table({"device": [f"d{i}" for i in range(9)], "temp": [20.123456 + i for i in range(9)]})
        self.streams = {"sensors": SimpleNamespace(status=lambda: STREAM)}
        self.pipelines = {"hot": SimpleNamespace(status=lambda: pipeline("hot"), results=lambda: rows)}

    def sql(self, text: str) -> list[Any]:
        self.scripts.append(text)
        return []


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=120), out


@pytest.mark.parametrize("terminal", [True, False])
def test_a_pipeline_joins_half_way_and_the_screen_shows_the_status(terminal: bool) -> None:
    hub: Any = PretendedHub()
    out, text = console(terminal)
    began = time.monotonic()
    show._watch(hub, out, began + 0.6, Interrupts())
    assert 0.6 <= time.monotonic() - began < 10
    assert hub.scripts == [show.script("joins_later")]
    shown = text.getvalue()
    for fact in ("1.23M", "2 of 20", "2026-01-01 00:05:30", "hot"):
        assert fact in shown
    assert ("\x1b[" in shown) is terminal


def test_ctrl_c_ends_the_demo_at_once() -> None:
    interrupts = Interrupts()
    interrupts.asked.set()
    hub: Any = PretendedHub()
    began = time.monotonic()
    show._watch(hub, console(False)[0], began + 60, interrupts)
    assert time.monotonic() - began < 10


def test_the_results_are_the_newest_rows_and_a_summary() -> None:
    hub: Any = PretendedHub()
    out, text = console(False)
    show._results(hub, {"sensors": 2}, out)
    shown = text.getvalue()
    assert "hot: the last of 4,321 rows" in shown
    assert "d8" in shown
    assert "28.12" in shown
    assert "28.123" not in shown
    assert "d3" not in shown
    assert "2 of 20 columns were decoded" in shown


def test_the_scripts_of_the_demo_have_no_errors_and_the_stream_has_twenty_columns() -> None:
    checked = check_script(show.script("sensors") + show.script("joins_later"))
    assert [p.name for p in checked.pipelines] == ["alarms", "climate", "volume", "power"]
    stream: Any = checked.statements[0]
    assert len(stream.schema) == 20
