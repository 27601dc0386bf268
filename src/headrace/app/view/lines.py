"""The status of streams and pipelines as plain lines, for logs and pipes."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.app.view.figures import count, milliseconds, moment, size
from headrace.model.status import PipelineStatus, StreamStatus


def stream_line(stream: StreamStatus) -> str:
    """One line about a stream."""
    if stream.epoch < 0:
        return f"{stream.name}: waiting for the first epoch"
    return (
        f"{stream.name}: {count(stream.rows)} rows in, {count(stream.rows_per_s)} rows/s, {stream.mb_per_s:.1f} MB/s, "
        f"{size(stream.lag_bytes)} waiting, "
        f"epoch {stream.epoch} ({milliseconds(stream.epoch_ms)}), "
        f"columns decoded {stream.columns_decoded} of {stream.columns_declared}, "
        f"watermark {moment(stream.watermark)}" + "".join(f", {loss}" for loss in stream.losses)
    )


def closing_line(stream: StreamStatus) -> str:
    """One line about a stream that has ended: rows read, and every other count that is not zero."""
    others = {
        "in the dead letter sink": stream.dead_letters,
        "too far in the future to move the watermark": stream.far_future,
    }
    counted = [f"{number:,} {what}" for what, number in others.items() if number]
    return f"stream {stream.name} {', '.join([f'{count(stream.rows)} rows in', *stream.losses, *counted])}"


def pipelines_line(pipelines: Sequence[PipelineStatus]) -> str:
    """One line about all pipelines: rows out, every other count that is not zero, and the state of pipelines that do
    not run."""
    parts = []
    for p in pipelines:
        state = "" if p.state == "running" else f" ({p.state})"
        held = [f"{p.groups:,} group{'' if p.groups == 1 else 's'} kept as state"] if p.groups else []
        lost = [f"without sink {', '.join(p.detached)}"] if p.detached else []
        parts.append(f"{p.name}{state} {', '.join([f'{count(p.rows_out)} rows out', *p.losses, *held, *lost])}")
    return "; ".join(parts) or "no pipelines"


def warning_lines(streams: Sequence[StreamStatus], pipelines: Sequence[PipelineStatus]) -> list[str]:
    """One line per warning."""
    found = [*(s.warnings for s in streams), *(p.warnings for p in pipelines)]
    return [f"warning: {warning}" for warnings in found for warning in warnings]


def count_lines(streams: Sequence[StreamStatus], pipelines: Sequence[PipelineStatus]) -> list[str]:
    """A line per stream, and one for all pipelines."""
    return [*map(stream_line, streams), f"  {pipelines_line(pipelines)}"]


def status_lines(streams: Sequence[StreamStatus], pipelines: Sequence[PipelineStatus]) -> list[str]:
    """A line per stream, one for all pipelines, and the warnings."""
    return [*count_lines(streams, pipelines), *warning_lines(streams, pipelines)]
