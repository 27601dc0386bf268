"""The live view: one panel per stream, and one table of all pipelines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headrace.app.view.figures import count, milliseconds, moment, size
from headrace.model.status import PipelineStatus, StreamStatus

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
    rejected = [_fact("rejected", count(stream.rejected))] if stream.rejected else []
    facts.add_row(
        _fact("rows in", count(stream.rows)),
        _fact("rows/s", count(stream.rows_per_s)),
        _fact("MB/s", f"{stream.mb_per_s:.1f}"),
        _fact("waiting", size(stream.lag_bytes)),
        _fact("epoch", f"{stream.epoch} ({milliseconds(stream.epoch_ms)})"),
        *rejected,
    )
    decoded = f"{stream.columns_decoded} of {stream.columns_declared}: {', '.join(stream.decoding_columns)}"
    return Panel(
        Group(
            facts,
            _fact("watermark", moment(stream.watermark)),
            _fact("columns decoded", decoded),
            *([_fact("lost", ", ".join(stream.losses))] if stream.losses else []),
            *(_warning(warning) for warning in stream.warnings),
        ),
        title=Text(f"stream {stream.name}" + ("" if stream.running else f" ({stream.state})")),
        title_align="left",
    )


def _warning(text: str) -> Text:
    return Text(f"warning: {text}", style="yellow")


def _fact(name: str, value: str) -> Text:
    return Text.assemble((f"{name} ", "dim"), (value, "bold"))


def _pipelines(pipelines: Sequence[PipelineStatus]) -> Table:
    """All pipelines. Columns for rejected and missed rows only if there are such rows: a terminal is 80 wide."""
    table = Table("pipeline", "state", expand=True, box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    columns: dict[str, Callable[[PipelineStatus], int]] = {
        "rows out": lambda p: p.rows_out,
        "late": lambda p: p.late,
        "bad": lambda p: p.bad,
    }
    sometimes: dict[str, Callable[[PipelineStatus], int]] = {
        "rejected": lambda p: p.rejected,
        "missed": lambda p: p.missed_rows,
    }
    columns |= {title: read for title, read in sometimes.items() if any(map(read, pipelines))}
    for title in (*columns, "kept as state", "per epoch"):
        table.add_column(title, justify="right")
    for p in pipelines:
        held = f"{count(p.groups)} group{'' if p.groups == 1 else 's'}, {size(p.state_bytes)}" if p.groups else "-"
        counts = [count(read(p)) for read in columns.values()]
        table.add_row(
            Text(p.name), Text(p.state, style=_STYLES.get(p.state, "")), *counts, held, milliseconds(p.epoch_ms)
        )
    return table
