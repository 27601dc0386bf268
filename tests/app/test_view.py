"""The terminal views show every status value, and never take text for markup."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime

from rich.console import Console, RenderableType

from headrace.app.view.lines import pipelines_line, stream_line
from headrace.app.view.live import draw
from headrace.model.status import PipelineStatus, StreamStatus

STREAM = StreamStatus(
    name="sensors",
    running=True,
    epoch=17,
    projection_version=3,
    decoding_columns=["ts", "temp"],
    columns_declared=20,
    subscribers={"hot": ["ts", "temp"]},
    rows=1_234_567,
    bytes=300_000_000,
    bad={"structure": 2, "value": 1},
    watermark=datetime(2026, 1, 1, 0, 5, 30, tzinfo=UTC),
    lag_bytes=0,
    epoch_ms=412.4,
    rows_per_s=20_000,
    mb_per_s=7.25,
)
FRESH = StreamStatus(
    name="new",
    running=True,
    epoch=-1,
    projection_version=1,
    decoding_columns=[],
    columns_declared=5,
    subscribers={},
    rows=0,
    bytes=0,
    bad={},
    watermark=None,
    lag_bytes=0,
    epoch_ms=None,
    rows_per_s=0.0,
    mb_per_s=0.0,
)


def pipeline(name: str, state: str = "running", late: int = 0) -> PipelineStatus:
    return PipelineStatus(
        name=name,
        stream="sensors",
        state=state,  # type: ignore[arg-type]
        instance=1,
        rows_out=4321,
        late=late,
        bad=0,
        groups=5,
        epoch_ms=12.0,
        missed_rows=0,
        gaps=[],
        error="",
    )


def shown(what: RenderableType) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(what)
    return out.getvalue()


def test_the_live_view_shows_every_fact_about_a_stream_and_its_pipelines() -> None:
    text = shown(draw([STREAM], [pipeline("hot"), pipeline("cold", "failed", late=9)], "ends soon"))
    for fact in ("1.23M", "20.0k", "7.2", "17 (412 ms)", "2 of 20: ts, temp", "2026-01-01 00:05:30", "ends soon"):
        assert fact in text
    cold = next(line for line in text.splitlines() if "cold" in line)
    assert all(fact in cold for fact in ("failed", "4.3k", "9", "12 ms"))


def test_a_stream_without_epochs_can_be_shown() -> None:
    assert "none yet" in shown(draw([FRESH], []))
    assert stream_line(FRESH) == "new: waiting for the first epoch"


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    assert "[red]x" in shown(draw([], [pipeline("[red]x")]))


def test_plain_lines_show_the_same_values() -> None:
    line = stream_line(STREAM)
    for fact in ("1.23M rows in", "7.2 MB/s", "412 ms", "2 of 20", "2026-01-01 00:05:30"):
        assert fact in line
    assert "\n" not in line
    both = pipelines_line([pipeline("hot"), pipeline("cold", "failed", late=9)])
    assert both == (
        "hot 4.3k rows out, 5 groups kept as state; cold (failed) 4.3k rows out, 9 late, 5 groups kept as state"
    )


def test_the_live_view_warns_of_pipelines_that_find_many_bad_values() -> None:
    ill = replace(pipeline("hot"), bad=60, rejected=60, rows_in=100)
    text = shown(draw([], [ill]))
    assert "60" in next(line for line in text.splitlines() if "running" in line)
    assert "warning: pipeline hot found bad values in 60 of 100 rows" in text
