"""The live view: a panel per stream with its pipelines in a table, redrawn as the numbers change."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headrace.view.status import PipelineFacts, StreamFacts, count, moment


def draw(streams: Sequence[StreamFacts], pipelines: Sequence[PipelineFacts], note: str = "") -> RenderableType:
    """Streams above, pipelines below, `note` as the last line."""
    parts: list[RenderableType] = [_stream(stream) for stream in streams]
    parts.append(_pipelines(pipelines))
    if note:
        parts.append(Text(note, style="dim"))
    return Group(*parts)


def _stream(stream: StreamFacts) -> Panel:
    facts = Table.grid(padding=(0, 3))
    decoded = f"{len(stream.columns_decoded)} of {stream.columns_declared}"
    names = ", ".join(stream.columns_decoded)
    facts.add_row(
        _fact("rows in", count(stream.rows)),
        _fact("rows/s", count(stream.rows_per_s)),
        _fact("MB/s", f"{stream.mb_per_s:.1f}"),
        _fact("epoch", f"{stream.epoch} ({stream.epoch_ms:.0f} ms)"),
        _fact("bad records", count(stream.bad)),
    )
    return Panel(
        Group(
            facts,
            _fact("watermark", moment(stream.watermark)),
            _fact("columns decoded", f"{decoded}  {names}"),
        ),
        title=Text(f"stream {stream.name}"),
        title_align="left",
    )


def _fact(name: str, value: str) -> Text:
    return Text.assemble((f"{name} ", "dim"), (value, "bold"))


def _pipelines(pipelines: Sequence[PipelineFacts]) -> Table:
    table = Table("pipeline", "state", expand=True)
    for title in ("rows in", "rows out", "late"):
        table.add_column(title, justify="right")
    for p in pipelines:
        state = Text(p.state, style="red" if p.error else "green" if p.state == "running" else "")
        table.add_row(Text(p.name), state, count(p.rows_in), count(p.rows_out), count(p.late))
    return table
