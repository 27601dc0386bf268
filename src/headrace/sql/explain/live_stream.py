"""The running stream that EXPLAIN describes, and the effect of adding a pipeline to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model.definitions import StreamDef
from headrace.model.program import PipelineProgram, families
from headrace.model.schema import View, field_at
from headrace.model.status import StreamStatus
from headrace.model.stream_options import stream_settings
from headrace.sql.parse.intervals import show_interval
from headrace.sql.planner import Planned


@dataclass(frozen=True)
class LiveStream:
    """A running stream, as its newest planned epoch sees it.

    `version` is the plan version of that epoch, `applied` the columns that it decodes, and `pipelines` the programs
    that it runs, by pipeline name. Pipelines in `alone` share no pass while their cost is measured.
    """

    version: int
    applied: View
    pipelines: Mapping[str, PipelineProgram] = field(default_factory=dict)
    status: StreamStatus | None = None
    alone: frozenset[str] = frozenset()

    @property
    def facts(self) -> dict[str, object]:
        """The progress of the stream."""
        status = self.status
        if status is None:
            return {}
        return {
            "epoch": status.epoch,
            "rows": status.rows,
            "bytes": status.bytes,
            "bad": dict(status.bad),
            "watermark": None if status.watermark is None else status.watermark.isoformat(),
            "lag_bytes": status.lag_bytes,
        }


@dataclass(frozen=True)
class Impact:
    """How the work of a running stream changes when a pipeline joins it."""

    decode: tuple[str, ...]
    filter: str
    shares_with: tuple[str, ...]

    @property
    def text(self) -> str:
        """The change as one line."""
        if self.decode:
            plural = "" if len(self.decode) == 1 else "s"
            decode = f"decode +{len(self.decode)} column{plural}: {', '.join(self.decode)}"
        else:
            decode = "decode nothing more"
        return "; ".join([decode, *self.shared])

    @property
    def shared(self) -> list[str]:
        """The steps that the pipeline shares, each with the names of the other pipelines."""
        parts = [self.filter] if self.filter else []
        if self.shares_with:
            parts.append(f"shares windowing with {', '.join(self.shares_with)}")
        return parts


def batch_policy(stream: StreamDef, live: LiveStream | None) -> list[str]:
    """The stream's own limits for epochs, if it sets any. Warns when an epoch takes longer than `max_latency`."""
    if not {"max_rows", "max_latency", "flush_on_watermark"} & stream.options.keys():
        return []
    settings = stream_settings(stream)
    wait = settings.max_latency
    lines = [f"epochs: cut at max_rows {settings.max_rows} or after max_latency {show_interval(wait)}"]
    if wait and not settings.flush_on_watermark:
        lines[0] += ", also after windows have closed"
    took = None if live is None or live.status is None else live.status.epoch_ms
    if "max_latency" in stream.options and took is not None and wait < took * 1000:
        lines.append(f"warning: an epoch took {took:.0f} ms, so rows wait longer than max_latency")
    return lines


def computed_columns(stream: StreamDef, view: View) -> dict[str, str]:
    """The expressions of the computed columns that `view` has, or that are the event time, by name."""
    used = {*view.indexes(len(stream.schema)), stream.event_time}
    return {stream.schema[c.index].name: c.text for c in stream.computed if c.index in used}


def asked_by(live: LiveStream, stream: StreamDef) -> dict[int, tuple[str, ...]]:
    """For each decoded column, the names of the running pipelines that need it, including a computed column."""
    width = len(stream.schema)
    needs = {name: set(stream.closed(program.view).indexes(width)) for name, program in live.pipelines.items()}
    return {
        index: tuple(sorted(name for name, columns in needs.items() if index in columns))
        for index in live.applied.indexes(width)
    }


def impact_of(planned: Planned, live: LiveStream) -> Impact:
    """The effect of adding `planned` to the running stream. A running pipeline is not compared with itself."""
    schema = planned.stream.schema
    width = len(schema)
    others = {name: p for name, p in live.pipelines.items() if name != planned.name}
    decoded = set(live.applied.indexes(width))
    view, event_time = planned.program.view, planned.stream.event_time
    view = view if event_time is None else view | View.some([event_time])
    needed = set(planned.stream.closed(view).indexes(width))
    where = planned.program.ring0.filter
    same_filter = sorted(name for name, p in others.items() if p.ring0.filter == where)
    condition = f"same filter as {', '.join(same_filter)}" if same_filter else "filter of its own"
    return Impact(
        decode=tuple(field_at(schema, i).name for i in sorted(needed - decoded)),
        filter=condition if where is not None else "",
        shares_with=_family(planned, live, others),
    )


def _family(planned: Planned, live: LiveStream, others: Mapping[str, PipelineProgram]) -> tuple[str, ...]:
    """The running pipelines that share the aggregation pass of `planned`."""
    if planned.name in live.alone:
        return ()
    sharing: dict[str | None, PipelineProgram] = {n: p for n, p in others.items() if n not in live.alone}
    own: str | None = planned.name  # None for a bare query
    for members in families({**sharing, own: planned.program}):
        if own in members:
            return tuple(sorted(name for name in members if name is not None and name != own))
    return ()
