"""Pipelines and rows for the tests of Rings 0 and 1, and a driver that runs them through real epochs without Spark.

The aggregates are the planner's own states and merges. An epoch is what Spark makes of it: every task runs the Ring 0
program on its batches and sends payloads, every lane gets them in order, then the watermark.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal as D
from typing import Any

import pyarrow as pa

from headrace.bridge.messages import MessageKind, in_order
from headrace.bridge.messages import Row as Message
from headrace.bridge.packs import PackEntry, packs, unpack
from headrace.bridge.rows import decode_rows
from headrace.exec.aggregates import schema_of
from headrace.model.definitions import PipelineDef
from headrace.model.program import (
    MEMBER,
    Emit,
    Expression,
    Meaning,
    Partial,
    PipelineProgram,
    Ring0Program,
    Ring1Program,
    Window,
)
from headrace.model.schema import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DOUBLE,
    STRING,
    TIMESTAMP,
    DataType,
    Decimal,
    Field,
    Schema,
    View,
)
from headrace.ring0.runner import Runner
from headrace.ring1.lane import advance
from headrace.ring1.lane_state import LaneHeader, LaneStep, Outcome, Store
from headrace.ring1.log_pool import begin, close
from headrace.ring1.packed import PackedStore
from headrace.ring1.pool_store import PoolStore
from headrace.sinks.sink_kind import SinkKey
from headrace.sql.functions.aggregate_functions import AGGREGATES as REGISTRY
from headrace.sql.functions.aggregate_functions import find_aggregate
from headrace.sql.rules.split_aggregates import PRESENCE
from tests.ring1.memory_store import MemoryStore

AMOUNT = Decimal(10, 2)
SCHEMA = Schema(
    (
        Field("word", STRING),
        Field("level", DOUBLE),
        Field("amount", AMOUNT),
        Field("value", DOUBLE),
        Field("note", STRING),
        Field("ts", TIMESTAMP),
    )
)
DROPPED = "drop"  # rows with this note do not pass the filter, but their time counts
FILTER = f"c4 IS DISTINCT FROM '{DROPPED}'"


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the stream; `t` is the event time in microseconds, None when it has none."""

    word: str | None
    level: float | None
    amount: D | None
    value: float | None
    note: str | None
    t: int | None


def to_table(events: Sequence[Event]) -> pa.Table:
    """The relation `rows` of these events."""
    columns = [[getattr(e, f.name) for e in events] for f in SCHEMA.fields[:5]]
    arrays: list[Any] = [pa.array(c, f.type.arrow) for c, f in zip(columns, SCHEMA, strict=False)]
    times = pa.array([e.t for e in events], pa.int64())
    arrays += [times.cast(TIMESTAMP.arrow), times]
    return pa.Table.from_arrays(arrays, names=[*(f"c{i}" for i in range(len(SCHEMA))), "_t"])


Call = tuple[str, str, tuple[tuple[str, DataType], ...]]  # the output's name, the aggregate, SQL and type of arguments

AGGREGATES: tuple[Call, ...] = (
    ("values", "count", (("c3", DOUBLE),)),
    ("total", "sum", (("c3", DOUBLE),)),
    ("mean", "avg", (("c3", DOUBLE),)),
    ("least", "min", (("c3", DOUBLE),)),
    ("most", "max", (("c3", DOUBLE),)),
    ("paid", "sum", (("c2", AMOUNT),)),
    ("mean_paid", "avg", (("c2", AMOUNT),)),
    ("first_word", "min", (("c4", STRING),)),
    ("last_word", "max", (("c4", STRING),)),
    ("different", "count distinct", (("c4", STRING),)),
    ("earliest", "first", (("c4", STRING),)),
    ("latest", "last", (("c4", STRING),)),
    ("highest", "max_by", (("c4", STRING), ("c3", DOUBLE))),
)


FEW = tuple(a for a in AGGREGATES if a[0] in ("total", "most", "paid"))  # each aggregate costs DuckDB about 1 ms a call


# The literal parameters of aggregates that have some.
CONSTANTS: dict[str, tuple[Any, ...]] = {
    "listagg": (", ",),
    "approx_count_distinct": (5,),
    **{f"percentile{suffix}": (0.4,) for suffix in ("", "_cont", "_disc", "_approx")},
    "histogram_numeric": (3,),
}
_COLUMNS: dict[str, tuple[str, DataType]] = {
    "DOUBLE": ("c3", DOUBLE),
    "STRING": ("c4", STRING),
    "DECIMAL": ("c2", AMOUNT),
    "TIMESTAMP": ("c5", TIMESTAMP),
    "BOOLEAN": ("(c3 > 1)", BOOLEAN),
    "BINARY": ("encode(c4)", BINARY),
    "BIGINT": ("CAST(abs(c2) AS BIGINT)", BIGINT),
    "ANY": ("c4", STRING),
    "ANY...": ("c3", DOUBLE),
}


def every_aggregate() -> list[Call]:
    """One call of each aggregate that the planner knows, by name and suffix and the number of its arguments."""
    found: dict[tuple[str, int], Call] = {}
    for function in REGISTRY:
        if all(param in _COLUMNS for param in function.params):
            arguments = tuple(_COLUMNS[param] for param in function.params)
            found.setdefault((function.name, len(function.params)), (f"a{len(found)}", function.name, arguments))
    return list(found.values())


def make_pipeline(
    window: Window | None,
    emit: Emit,
    *,
    keys: Sequence[int] = (0, 1),
    buckets: int = 2,
    aggregates: Sequence[Call] = FEW,
    where: str | None = FILTER,
    having: str | None = None,
    instance: int = 1,
    pooled: bool = False,
) -> PipelineDef:
    """SELECT [window,] keys, count(*) AS rows, aggregates FROM stream WHERE ... GROUP BY ..."""
    partials = [PRESENCE]
    outputs = [Expression(b, BIGINT, b) for b in ("window_start", "window_end") if window is not None]
    outputs += [Expression(SCHEMA[k].name, SCHEMA[k].type, f"k{i}") for i, k in enumerate(keys)]
    outputs.append(Expression("rows", BIGINT, "p0"))
    for name, function, arguments in aggregates:
        kinds = [kind for _, kind in arguments]
        found = find_aggregate(function, kinds)
        assert found is not None
        kind = found.result_type(kinds)
        assert kind is not None
        texts = [text for text, _ in arguments] + ([] if found.time == "unused" else ["_t"])
        constants = CONSTANTS.get(function.partition(" ")[0], ())
        split = found.states(texts, kinds, kind, constants)
        guarded = [f"CASE WHEN {MEMBER} THEN {text} END" for text in texts]
        states = zip(split.states, found.states(guarded, kinds, kind, constants).states, strict=True)
        numbered = [(f"p{len(partials) + i}", *pair) for i, pair in enumerate(states)]
        partials += [Partial(p, s.type, s.sql, s.merge.format(p=p), of_member.sql) for p, s, of_member in numbered]
        outputs.append(Expression(name, kind, split.result.format(*(p for p, _, _ in numbered))))
    program = PipelineProgram(
        "s",
        View.all(),
        Ring0Program(
            where,
            keys=tuple(Expression(SCHEMA[k].name, SCHEMA[k].type, f"c{k}") for k in keys),
            window=window,
            partials=tuple(partials),
        ),
        Ring1Program(tuple(SCHEMA[k] for k in keys), window, tuple(partials), emit, having, tuple(outputs)),
        Schema(tuple(Field(o.name, o.type) for o in outputs)),
        Meaning(),
    )
    return PipelineDef("p", instance, (), program, buckets, pooled=pooled)


Task = Sequence[Sequence[Event]]  # batches
Epoch = Sequence[Task]


@dataclass(slots=True)
class Run:
    """A pipeline's lanes over many epochs, and their output."""

    pipeline: PipelineDef
    delay: int
    watermark: int | None = None
    late: int = 0
    outputs: list[list[dict[str, Any]]] = field(default_factory=list)
    stores: list[MemoryStore] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stores = [MemoryStore() for _ in range(self.pipeline.buckets)]

    def epoch(self, tasks: Epoch, *, flush: bool = False, drop: bool = False, shuffle: int = 0) -> list[dict[str, Any]]:
        """One epoch; `shuffle` seeds the order in which messages arrive. Returns its output rows."""
        messages: list[Message] = []
        for number, batches in enumerate(tasks):
            runner = Runner(self.pipeline, SinkKey("c", 1, len(self.outputs)), self.watermark)
            for batch in batches:
                if batch:
                    runner.feed(to_table(batch))
            for bucket, entry in runner.finish(1 << 20):
                payload = next(packs([entry])) if self.pipeline.pooled else entry.payload
                messages.append(Message(1, bucket, number, len(messages), int(MessageKind.EVENTS), payload))
            self.late += runner.late
        random.Random(shuffle).shuffle(messages)
        times = [e.t for batches in tasks for batch in batches for e in batch if e.t is not None]
        known = [max(times) - self.delay] if times else []
        known += [] if self.watermark is None else [self.watermark]
        self.watermark = max(known) if known else None
        return self.step(messages, flush=flush, drop=drop)

    def step(self, messages: Iterable[Message], *, flush: bool = False, drop: bool = False) -> list[dict[str, Any]]:
        """Ring 1's part of an epoch."""
        program = self.pipeline.program
        assert program.ring1 is not None
        rows: list[dict[str, Any]] = []
        ordered = in_order(messages)
        self.outcomes = []
        for bucket, store in enumerate(self.stores):
            sent = [m.payload for m in ordered if m.bucket == bucket]
            if self.pipeline.pooled:
                outcome = self._pooled(store, [entry for payload in sent for entry in unpack(payload)], flush, drop)
            else:
                outcome = self._advanced(PackedStore(store), sent, flush, drop)
            self.late += outcome.late
            self.outcomes.append(outcome)
            if outcome.output is not None:
                assert outcome.output.schema == program.output.arrow
                rows += outcome.output.to_pylist()
        self.outputs.append(rows)
        return rows

    def _advanced(self, store: Store, payloads: list[bytes], flush: bool, drop: bool) -> Outcome:
        program = self.pipeline.program
        assert program.ring1 is not None
        events = decode_rows(payloads, schema_of(program.ring1))
        step = LaneStep(events, self.watermark, flush, drop, max_values=self.pipeline.max_group_values)
        return advance(program.ring1, program.meaning, store, step)

    def _pooled(self, store: MemoryStore, entries: list[PackEntry], flush: bool, drop: bool) -> Outcome:
        """As `headrace.ring1.lane_run.run_pool` does it, for the only lane of a pool."""
        pool = PoolStore(store)
        pool.load()
        lane, step = pool.lane(self.pipeline.lane), None
        if self.pipeline.program.logged and not flush and not drop:
            step = begin(self.pipeline, lane, entries, self.watermark)
        if step is None:
            outcome = self._advanced(lane, [entry.payload for entry in entries], flush, drop)
        else:
            (output,) = close([step])
            if isinstance(output, Exception):
                raise output
            outcome = step.finish(output)
        pool.settle()
        return outcome

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All output rows, in order."""
        return [row for epoch in self.outputs for row in epoch]


def pooled_windows(store: MemoryStore) -> int:
    """How many windows the lanes of the pool in `store` keep."""
    pool = PoolStore(store)
    pool.load()
    headers = [LaneHeader.decode(pool.lane(lane).header()) for lane in pool.lanes]
    return sum(len(header.logs) + len(header.tables) for header in headers)


def windows(store: MemoryStore, *, packed: bool = False) -> int:
    """How many windows the lane in `store` keeps."""
    header = LaneHeader.decode(PackedStore(store).header() if packed else store.header())
    return len(header.logs) + len(header.tables)


def number(value: float | None) -> Any:
    """A double as something that can be compared and hashed: one NaN, one zero."""
    if value is None:
        return None
    return "NaN" if math.isnan(value) else value + 0.0


def windows_of(window: Window, t: int) -> list[tuple[int, int]]:
    """The windows that hold time `t`, by definition rather than by arithmetic: all candidates are tried."""
    span = range(t - window.size - window.slide, t + 1)
    if window.kind == "cumulate":
        starts = [s for s in span if (s - window.offset) % window.size == 0 and s <= t < s + window.size]
        ends = [min(s + i * window.slide, s + window.size) for s in starts for i in range(1, window.size + 1)]
        return sorted({(s, e) for s in starts for e in ends if t < e})
    return [(s, s + window.size) for s in span if (s - window.offset) % window.slide == 0 and s <= t < s + window.size]


def group_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """The group of an output row: its window and its keys."""
    return (row.get("window_start"), row.get("window_end"), row["word"], number(row["level"]))


def by_note(event: Event) -> tuple[bool, bytes, str | None]:
    """Notes in DuckDB's order, in which NULL comes last: it decides between equal times and equal values."""
    return event.note is None, (event.note or "").encode(), event.note


def expected_row(events: Sequence[Event]) -> dict[str, Any]:
    """The aggregates of one group, computed plainly."""
    values = [e.value for e in events if e.value is not None]
    amounts = [e.amount for e in events if e.amount is not None]
    notes = [e.note for e in events if e.note is not None]
    ordered = sorted(values, key=lambda v: (math.isnan(v), v if not math.isnan(v) else 0.0))
    finite = all(map(math.isfinite, values))
    total = (math.fsum(values) if finite else sum(values)) if values else None
    paid = sum(amounts, D(0)) if amounts else None
    mean_paid = None
    if paid is not None:
        mean_paid = (paid / len(amounts)).quantize(D("0.000001"), rounding="ROUND_HALF_UP")
    timed = sorted((e.t, by_note(e)) for e in events if e.t is not None)
    valued = sorted((math.isnan(e.value), number(e.value), by_note(e)) for e in events if e.value is not None)
    return {
        "rows": len(events),
        "values": len(values),
        "total": total,
        "mean": None if total is None else total / len(values),
        "least": number(ordered[0]) if ordered else None,
        "most": number(ordered[-1]) if ordered else None,
        "paid": paid,
        "mean_paid": mean_paid,
        "first_word": min(notes, key=str.encode, default=None),
        "last_word": max(notes, key=str.encode, default=None),
        "different": len(set(notes)),
        "earliest": timed[0][-1][-1] if timed else None,
        "latest": timed[-1][-1][-1] if timed else None,
        "highest": valued[-1][-1][-1] if valued else None,
    }


def assert_row(row: dict[str, Any], events: Sequence[Event]) -> None:
    """The output row of a group is right. Sums of doubles are within 1e-12 of the magnitude of what was added, every
    other value is exact."""
    expected = expected_row(events)
    for name in row.keys() & expected.keys():
        found, value = row[name], expected[name]
        if name in ("total", "mean") and value is not None and math.isfinite(value):
            magnitude = math.fsum(abs(e.value) for e in events if e.value is not None)
            assert abs(found - value) <= 1e-12 * magnitude, (name, found, value)
        elif isinstance(value, float) or isinstance(found, float):
            assert number(found) == number(value) if not isinstance(value, str) else number(found) == value, name
        else:
            assert found == value, (name, found, value)
