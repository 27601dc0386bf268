"""A small stream, pipelines on it, and the messages of one task, sorted for comparison."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.bridge.messages import (
    STREAM_LANE,
    LaneEnd,
    LaneEpoch,
    MessageKind,
    PooledEnd,
    Receipt,
    Row,
    decode,
)
from headrace.bridge.packs import unpack as unpack_events
from headrace.bridge.pools import bucket_of
from headrace.bridge.reports import Failure, PlannedEpoch, TaskReport
from headrace.bridge.rows import decode_rows
from headrace.bridge.task_counts import PipelineCounts, decode_report
from headrace.control.signals import Barrier
from headrace.exec.aggregates import schema_of
from headrace.formats.format_kind import Format
from headrace.model.definitions import PipelineDef, SinkDef, StreamDef
from headrace.model.plan_version import PipelineExit, PlanVersion
from headrace.model.program import Expression, Meaning, PipelineProgram, Ring0Program, Ring1Program, Window
from headrace.model.schema import BIGINT, DOUBLE, INT, STRING, TIMESTAMP, Field, Schema, View
from headrace.ring0.task import run_task
from headrace.ring0.task_input import TaskInput
from headrace.sinks.in_process import unpack
from headrace.sources.source_kind import RawChunk
from headrace.sql.rules.split_aggregates import PRESENCE

SCHEMA = Schema(
    (Field("word", STRING), Field("n", INT), Field("x", DOUBLE), Field("ts", TIMESTAMP), Field("spare", STRING))
)
WORD, N, X, TS, SPARE = range(5)
SECOND = 1_000_000


def stream(fmt: str = "json", event_time: int | None = TS, **options: str) -> StreamDef:
    letters = SinkDef("letters", "memory", {}) if options.get("on_error") == "dead_letter" else None
    return StreamDef("s", SCHEMA, event_time, 10 * SECOND, "files", fmt, options, dead_letters=letters)


@dataclass(frozen=True)
class Chunks:
    """A split whose chunks are already in memory; every record ends with a newline."""

    chunks: tuple[bytes, ...]

    def read(self, fmt: Format) -> Iterator[RawChunk]:
        offset = 0
        for data in self.chunks:
            yield RawChunk("memory", offset, data)
            offset += len(data)


def at(second: int) -> str:
    return f"1970-01-01T00:{second // 60:02}:{second % 60:02}Z"


def lines(*records: dict[str, Any] | str) -> bytes:
    return b"".join((r if isinstance(r, str) else json.dumps(r)).encode() + b"\n" for r in records)


def stateless(
    instance: int, *columns: int, where: str | None = None, view: View | None = None, sql: str | None = None
) -> PipelineDef:
    """SELECT columns [, sql AS computed] FROM s WHERE ... into a memory sink. `sql` is an INT."""
    outputs = tuple(Expression(SCHEMA[c].name, SCHEMA[c].type, f"c{c}") for c in columns)
    if sql is not None:
        outputs += (Expression("computed", INT, sql),)
    return _pipeline(
        instance,
        view or View.some(columns),
        Ring0Program(where, outputs=outputs, filter_columns=_read_by(where)),
        None,
        outputs,
        1,
    )


def counting(
    instance: int,
    key: int | None,
    *,
    window: Window | None = None,
    where: str | None = None,
    view: View | None = None,
    buckets: int = 2,
    sql: str | None = None,
) -> PipelineDef:
    """SELECT key, count(*) FROM s WHERE ... GROUP BY key [, window]. `sql` replaces the key by an INT."""
    keys: tuple[Expression, ...] = ()
    if sql is not None:
        keys = (Expression("computed", INT, sql),)
    elif key is not None:
        keys = (Expression(SCHEMA[key].name, SCHEMA[key].type, f"c{key}"),)
    fields = tuple(Field(k.name, k.type) for k in keys)
    outputs = (*(Expression(f.name, f.type, f"k{i}") for i, f in enumerate(fields)), Expression("rows", BIGINT, "p0"))
    ring0 = Ring0Program(where, (), keys, window, (PRESENCE,), _read_by(where))
    ring1 = Ring1Program(fields, window, (PRESENCE,), "close" if window else "changes", None, outputs)
    view = view or (View.none() if key is None else View.some([key]))
    return _pipeline(instance, view, ring0, ring1, outputs, buckets)


def _pipeline(
    instance: int,
    view: View,
    ring0: Ring0Program,
    ring1: Ring1Program | None,
    outputs: Sequence[Expression],
    buckets: int,
) -> PipelineDef:
    output = Schema(tuple(Field(o.name, o.type) for o in outputs))
    program = PipelineProgram("s", view, ring0, ring1, output, Meaning())
    return PipelineDef(f"p{instance}", instance, (SinkDef("out", "memory", {}),), program, buckets)


@dataclass
class Sent:
    """One task's messages by receiver. `rows` are a stateless pipeline's, `events` a lane's partials."""

    messages: list[Row]
    pipelines: Sequence[PipelineDef]
    report: TaskReport = field(init=False)
    counts: dict[int, PipelineCounts] = field(init=False)  # of the report, by instance
    errors: dict[int, str] = field(default_factory=dict)
    rows: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    events: dict[tuple[int, int], list[dict[str, Any]]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)  # rows of each message of events
    watermarks: dict[tuple[int, int], list[LaneEpoch]] = field(default_factory=dict)
    ends: dict[tuple[int, int], list[LaneEnd]] = field(default_factory=dict)
    letters: list[dict[str, Any]] = field(default_factory=list)
    barriers: dict[tuple[int, int], list[Barrier]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        schemas = {p.lane: schema_of(p.program.ring0) for p in self.pipelines}
        for m in self.messages:
            lane = (m.instance, m.bucket)
            bucket = bucket_of(lane)
            if bucket is not None and m.kind == MessageKind.EVENTS:
                for entry in unpack_events(m.payload):
                    rows = decode_rows([entry.payload], schemas[entry.lane]).to_pylist()
                    self.events.setdefault((entry.lane, bucket), []).extend(rows)
            elif bucket is not None and m.kind == MessageKind.EOF:
                ended = decode(PooledEnd, m.payload)
                self.ends.setdefault((ended.lane, bucket), []).append(ended.end)
            elif m.kind == MessageKind.EVENTS:
                self.sizes.append(len(rows := decode_rows([m.payload], schemas[m.instance]).to_pylist()))
                self.events.setdefault(lane, []).extend(rows)
            elif m.kind == MessageKind.WATERMARK:
                self.watermarks.setdefault(lane, []).append(LaneEpoch.decode(m.payload))
            elif m.kind == MessageKind.BARRIER:
                self.barriers.setdefault(lane, []).append(decode(Barrier, m.payload))
            elif m.kind == MessageKind.EOF:
                self.ends.setdefault(lane, []).append(decode(LaneEnd, m.payload))
            elif m.kind == MessageKind.OUTPUT:
                receipt = Receipt.decode(m.payload)
                mine = receipt.instance
                into = self.letters if mine == STREAM_LANE else self.rows.setdefault(mine, [])
                into.extend(unpack(receipt.staged.data).to_pylist())
            elif m.kind == MessageKind.ERROR:
                failure = decode(Failure, m.payload)
                self.errors[failure.instance] = failure.reason
            else:
                assert (m.instance, m.kind) == (STREAM_LANE, MessageKind.REPORT)
                self.report, counts = decode_report(m.payload)
                self.counts = {row[0]: PipelineCounts._make(row) for row in counts.tolist()}

    def of(self, pipeline: PipelineDef) -> dict[str, Any]:
        """The messages and counters of one pipeline, without the time it took. Groups are in a fixed order."""
        mine = pipeline.instance
        counts = self.counts.get(mine)
        return {
            "rows": repr(self.rows.get(mine)),
            "events": {b: sorted(map(repr, rows)) for (i, b), rows in self.events.items() if i == mine},
            "watermarks": {b: found for (i, b), found in self.watermarks.items() if i == mine},
            "ends": {b: found for (i, b), found in self.ends.items() if i == mine},
            "error": self.errors.get(mine),
            "counters": None if counts is None or not counts.timed else (counts.late, counts.bad),
        }


def task(
    pipelines: Sequence[PipelineDef],
    *chunks: bytes,
    declared: StreamDef | None = None,
    watermark: int | None = None,
    number: int = 0,
    tasks: int = 1,
    ending: bool = False,
    leaving: tuple[PipelineExit, ...] = (),
    now: int | None = None,
    barrier: Barrier | None = None,
) -> Sent:
    """Run one task over the given chunks; no chunks at all is a task without a split."""
    plan = PlanVersion(3, declared or stream(), tuple(pipelines), ending, leaving)
    split = Chunks(chunks) if chunks else None
    planned = PlannedEpoch(7, tasks, "checkpoint", watermark, now, requested=barrier)
    given = TaskInput(plan, split, number, planned, leaving)
    return Sent([row for batch in run_task(given) for row in batch], pipelines)


def _read_by(where: str | None) -> tuple[int, ...]:
    """The columns that a filter reads, as the SQL planner would find them."""
    return tuple(sorted({int(i) for i in re.findall(r"\bc(\d+)\b", where or "")}))
