"""The same facts as plain lines, for logs and pipes."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.view.status import PipelineFacts, StreamFacts, count, moment


def stream_line(stream: StreamFacts) -> str:
    """One line about a stream."""
    return (
        f"{stream.name}: {count(stream.rows)} rows in, {count(stream.rows_per_s)} rows/s, {stream.mb_per_s:.1f} MB/s, "
        f"epoch {stream.epoch} ({stream.epoch_ms:.0f} ms), "
        f"columns decoded {len(stream.columns_decoded)} of {stream.columns_declared}, "
        f"watermark {moment(stream.watermark)}"
    )


def pipeline_line(pipelines: Sequence[PipelineFacts]) -> str:
    """One line about all pipelines: rows out, and the state of those that do not run."""
    parts = []
    for p in pipelines:
        late = f", {count(p.late)} late" if p.late else ""
        state = "" if p.state == "running" else f" ({p.state})"
        parts.append(f"{p.name}{state} {count(p.rows_out)} rows out{late}")
    return "; ".join(parts) or "no pipelines"
