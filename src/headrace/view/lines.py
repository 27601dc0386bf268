"""The same facts as plain lines, for logs and pipes."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.status import PipelineStatus, StreamStatus
from headrace.view.text import count, milliseconds, moment


def stream_line(stream: StreamStatus) -> str:
    """One line about a stream."""
    if stream.epoch < 0:
        return f"{stream.name}: waiting for the first epoch"
    return (
        f"{stream.name}: {count(stream.rows)} rows in, {count(stream.rows_per_s)} rows/s, {stream.mb_per_s:.1f} MB/s, "
        f"epoch {stream.epoch} ({milliseconds(stream.epoch_ms)}), "
        f"columns decoded {len(stream.decoding_columns)} of {stream.columns_declared}, "
        f"watermark {moment(stream.watermark)}" + "".join(f", {loss}" for loss in stream.losses)
    )


def closing_line(stream: StreamStatus) -> str:
    """One line about a stream that has ended: what came in, and what did not become rows."""
    return f"stream {stream.name} {', '.join([f'{count(stream.rows)} rows in', *stream.losses])}"


def pipelines_line(pipelines: Sequence[PipelineStatus]) -> str:
    """One line about all pipelines: rows out, what was lost if anything, and the state of those that do not run."""
    parts = []
    for p in pipelines:
        state = "" if p.state == "running" else f" ({p.state})"
        parts.append(f"{p.name}{state} {', '.join([f'{count(p.rows_out)} rows out', *p.losses])}")
    return "; ".join(parts) or "no pipelines"


def warning_lines(streams: Sequence[StreamStatus], pipelines: Sequence[PipelineStatus]) -> list[str]:
    """A line for everything that somebody should look at."""
    found = [*(s.warnings for s in streams), *(p.warnings for p in pipelines)]
    return [f"warning: {warning}" for warnings in found for warning in warnings]


def status_lines(streams: Sequence[StreamStatus], pipelines: Sequence[PipelineStatus]) -> list[str]:
    """A line per stream, one for all pipelines, and the warnings."""
    return [*map(stream_line, streams), f"  {pipelines_line(pipelines)}", *warning_lines(streams, pipelines)]
