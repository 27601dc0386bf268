"""The live view: a panel per stream with its pipelines in a table, redrawn as the numbers change."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headrace.status import PipelineStatus, StreamStatus
from headrace.view.text import count, milliseconds, moment

_STYLES = {"running": "green", "failed": "red"}


def draw(streams: Sequence[StreamStatus], pipelines: Sequence[PipelineStatus], note: str = "") -> RenderableType:
    """Streams above, pipelines below, `note` as the last line."""
    parts: list[RenderableType] = [_stream(stream) for stream in streams]
    parts.append(_pipelines(pipelines))
    parts += [_warning(warning) for pipeline in pipelines for warning in pipeline.warnings]
    if note:
        parts.append(Text(note, style="dim"))
    return Group(*parts)


def _stream(stream: StreamStatus) -> Panel:
    facts = Table.grid(padding=(0, 3))
    facts.add_row(
        _fact("rows in", count(stream.rows)),
        _fact("rows/s", count(stream.rows_per_s)),
        _fact("MB/s", f"{stream.mb_per_s:.1f}"),
        _fact("epoch", f"{stream.epoch} ({milliseconds(stream.epoch_ms)})"),
        _fact("rejected", count(stream.rejected)),
    )
    decoded = f"{len(stream.decoding_columns)} of {stream.columns_declared}: {', '.join(stream.decoding_columns)}"
    return Panel(
        Group(
            facts,
            _fact("watermark", moment(stream.watermark)),
            _fact("columns decoded", decoded),
            *([_fact("lost", ", ".join(stream.losses))] if stream.losses else []),
            *(_warning(warning) for warning in stream.warnings),
        ),
        title=Text(f"stream {stream.name}"),
        title_align="left",
    )


def _warning(text: str) -> Text:
    return Text(f"warning: {text}", style="yellow")


def _fact(name: str, value: str) -> Text:
    return Text.assemble((f"{name} ", "dim"), (value, "bold"))


def _pipelines(pipelines: Sequence[PipelineStatus]) -> Table:
    table = Table("pipeline", "state", expand=True)
    for title in ("rows out", "late", "bad", "rejected", "missed", "time per epoch"):
        table.add_column(title, justify="right")
    for p in pipelines:
        state = Text(p.state, style=_STYLES.get(p.state, ""))
        counts = [count(n) for n in (p.rows_out, p.late, p.bad, p.rejected, p.missed_rows)]
        table.add_row(Text(p.name), state, *counts, milliseconds(p.epoch_ms))
    return table
