"""What a running hub tells EXPLAIN about a stream, and what adding a pipeline to it would change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model.program import PipelineProgram, StreamDef
from headrace.model.schema import Schema, View
from headrace.model.status import StreamStatus
from headrace.model.stream_options import stream_settings
from headrace.sql.parse.intervals import show_interval
from headrace.sql.planner import Planned
from headrace.sql.rules.find_families import program_family


@dataclass(frozen=True)
class LiveStream:
    """A stream as it runs: the plan version of the newest planned epoch, the columns that epoch decodes (`applied`),
    the programs of the pipelines in it, by name, and what else is known of the stream."""

    version: int
    applied: View
    pipelines: Mapping[str, PipelineProgram] = field(default_factory=dict)
    status: StreamStatus | None = None

    @property
    def facts(self) -> dict[str, object]:
        """How far the stream has come."""
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
    """What adding a pipeline to a running stream would change."""

    decode: tuple[str, ...]
    filter: str
    shares_with: tuple[str, ...]

    @property
    def text(self) -> str:
        """One line for people."""
        if self.decode:
            plural = "" if len(self.decode) == 1 else "s"
            decode = f"decode +{len(self.decode)} column{plural}: {', '.join(self.decode)}"
        else:
            decode = "decode nothing more"
        return "; ".join([decode, *self.shared])

    @property
    def shared(self) -> list[str]:
        """What the pipeline does together with others, and with whom."""
        parts = [self.filter] if self.filter else []
        if self.shares_with:
            parts.append(f"shares windowing with {', '.join(self.shares_with)}")
        return parts


def batch_policy(stream: StreamDef, live: LiveStream | None) -> list[str]:
    """When epochs are cut, if the stream says so; with a warning when that is sooner than an epoch takes."""
    if not {"max_rows", "max_latency", "flush_on_watermark"} & stream.options.keys():
        return []
    settings = stream_settings(stream)
    wait = settings.max_latency
    told = [f"epochs: cut at max_rows {settings.max_rows} or after max_latency {show_interval(wait)}"]
    if wait and not settings.flush_on_watermark:
        told[0] += ", also after windows have closed"
    took = None if live is None or live.status is None else live.status.epoch_ms
    if "max_latency" in stream.options and took is not None and wait < took * 1000:
        told.append(f"warning: an epoch took {took:.0f} ms, so rows wait longer than max_latency")
    return told


def asked_by(live: LiveStream, schema: Schema) -> dict[int, tuple[str, ...]]:
    """For each decoded column, the running pipelines that need it, by name."""
    width = len(schema)
    needs = {name: set(program.view.indexes(width)) for name, program in live.pipelines.items()}
    return {
        index: tuple(sorted(name for name, columns in needs.items() if index in columns))
        for index in live.applied.indexes(width)
    }


def impact_of(planned: Planned, live: LiveStream) -> Impact:
    """What changes when `planned` joins the running stream; itself, if it already runs, does not count as another."""
    schema = planned.stream.schema
    width = len(schema)
    others = {name: p for name, p in live.pipelines.items() if name != planned.name}
    decoded = set(live.applied.indexes(width))
    needed = set(planned.program.view.indexes(width))
    if planned.stream.event_time is not None:
        needed.add(planned.stream.event_time)
    fresh = tuple(schema[i].name for i in sorted(needed - decoded))
    where = planned.program.ring0.filter
    same_filter = sorted(name for name, p in others.items() if p.ring0.filter == where)
    condition = f"same filter as {', '.join(same_filter)}" if same_filter else "filter of its own"
    family = program_family(planned.program)
    shares = () if family is None else tuple(sorted(n for n, p in others.items() if program_family(p) == family))
    return Impact(fresh, condition if where is not None else "", shares)
