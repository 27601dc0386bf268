"""Compiled pipelines: plain data that travels by value from the planner to the Spark tasks.

The planner (`headrace.sql`) makes a `PipelineProgram`. Ring 0 (`headrace.ring0`) runs its `ring0` part on decoded
batches, Ring 1 (`headrace.ring1`) its `ring1` part on partial aggregates. Nothing here imports an engine.

**The relations that the SQL strings refer to** (all SQL here is DuckDB SQL):

- Ring 0 expressions see the relation `rows`: one column `c<i>` per column of the stream's full schema, `i` being
  its index. Columns that no pipeline needs are NULL of their type. `_t` (BIGINT) is the event time in microseconds
  since 1970 UTC, NULL when the stream has none.
- Ring 1 expressions see the relation `groups`: the keys as `k0, k1, ...`, the merged partials as `p0, p1, ...`, and,
  when there is a window, `window_start` and `window_end` (BIGINT microseconds). `p0` is always the number of rows
  in the group (its presence count).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from headrace.model.codec import stored_as
from headrace.model.schema import BIGINT, BINARY, NESTED, STRING, DataType, Field, Schema, View

# When a group is emitted: once, when its window closes; in every epoch that changed it; once, when it first appears.
Emit = Literal["close", "changes", "first"]
MEMBER = "_member"
DERIVED = "pipeline"  # the source of a stream that a pipeline feeds
WindowKind = Literal["tumble", "hop", "cumulate", "session"]

# The columns of a dead letter. `column` is NULL for bad structure. `raw` is the rejected record without its delimiter,
# which begins at byte `offset` of `origin`. `text` is `raw` for people: as UTF-8, other bytes replaced.
DEAD_LETTER = Schema(
    (
        Field("stream", STRING),
        Field("origin", STRING),
        Field("offset", BIGINT),
        Field("column", STRING),
        Field("reason", STRING),
        Field("raw", BINARY),
        Field("text", STRING),
    )
)


@dataclass(frozen=True, slots=True)
class Expression:
    """A named, typed DuckDB expression. Its result is cast to `type` when it leaves DuckDB."""

    name: str
    type: DataType
    sql: str


@dataclass(frozen=True, slots=True)
class Partial:
    """The partial state of one aggregate: Ring 0 computes it with `sql`, and both rings merge it with `merge`.

    `merge` is a DuckDB aggregate over the column `name` itself (for `p1`: `sum(p1)`), so merging is associative and
    can be repeated. Its input and output both have `type`. `filtered` is `sql` over only the rows whose column
    `_member` is true; it does not evaluate its arguments on the others. With it, pipelines of one family aggregate the
    same rows in one pass. A partial without `filtered` is aggregated alone.
    """

    name: str
    type: DataType
    sql: str
    merge: str
    filtered: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """An event-time window. All lengths are in microseconds.

    tumble: `size` = `slide`. hop: a row is in size/slide windows. cumulate: `size` is the longest, `slide` the step.
    session: `size` is the gap; a row exactly one gap after the last one still joins its session. Windows are aligned to
    `offset`.
    """

    kind: WindowKind
    size: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.size <= 0 or self.slide <= 0:
            raise ValueError("the size and the slide of a window must be positive")


@dataclass(frozen=True, slots=True)
class Condition:
    """One operand of a filter's AND, and the columns that it reads, by full-schema index."""

    sql: str
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FallibleExpression:
    """An expression of Ring 0 that may fail on some row. `text` is the user's own, `sql` evaluates it on the rows that
    reach it, and `columns` are those that it reads, by full-schema index."""

    text: str
    sql: str
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SizedValue:
    """A value that may be larger than its inputs. `sql` computes an upper bound of its bytes (DOUBLE) without computing
    the value. `expression` is the user's own text."""

    expression: str
    sql: str


@dataclass(frozen=True, slots=True)
class Growth:
    """How many bytes a program makes of a row. `headrace.exec.sizing` uses it to bound memory.

    A row takes the sum of `values` and `plain`, the bytes (DOUBLE) of outputs that are as large as their columns.
    `columns` bounds that sum without reading rows: a factor for the bytes of each column, and `fixed` bytes per row. It
    is None when the bound depends on the rows. `in_filter` is true if the filter itself computes such values.
    """

    values: tuple[SizedValue, ...] = ()
    plain: str = "0"
    columns: dict[str, float] | None = field(default_factory=dict)
    fixed: float = 0.0
    in_filter: bool = False


@dataclass(frozen=True, slots=True)
class RowGenerator:
    """Makes rows: one for each element of the lists `columns`, which have the same length in every row.

    `filter` drops rows before. `kept` are the columns that the made rows keep of their row. The new columns have the
    names of `columns`, and the type of the elements. With `outer`, a row without elements makes one row of NULLs.
    """

    columns: tuple[Expression, ...]
    kept: tuple[str, ...]
    outer: bool = False
    filter: str | None = None
    growth: Growth = field(default_factory=Growth, compare=False)


@dataclass(frozen=True, slots=True)
class Ring0Program:
    """The stateless part: filter, then either `outputs` (no aggregate) or keys, window and partials.

    With `generators`, `filter` drops rows of the stream, and the generators make rows of the others, one after the
    other. All that follows reads the made rows: first `made_filter`, which drops some of them.

    `filter_columns` are the columns that the filter reads, by full-schema index: they are decoded first. `conditions`
    are the operands of its AND. A row with a bad value is filtered by the conditions that do not read that value.

    `bucket_keys` are the keys whose hash chooses the bucket; None for all of them.
    """

    filter: str | None
    outputs: tuple[Expression, ...] = ()
    keys: tuple[Expression, ...] = ()
    window: Window | None = None
    partials: tuple[Partial, ...] = ()
    filter_columns: tuple[int, ...] = ()
    conditions: tuple[Condition, ...] = ()
    generators: tuple[RowGenerator, ...] = ()
    made_filter: str | None = None
    bucket_keys: tuple[int, ...] | None = None
    # Not compared: they follow from the other fields, except for the spelling of the user's expressions.
    growth: Growth = field(default_factory=Growth, compare=False)
    fallible: tuple[FallibleExpression, ...] = field(default=(), compare=False)  # in the order of evaluation


@dataclass(frozen=True, slots=True)
class Ring1Program:
    """The stateful part: merge partials per (window, keys), then `having`, then `outputs`.

    `ranks` are window functions over the groups that `having` keeps, as columns `r0, r1, ...` of them. All groups of a
    partition are in one lane. `qualify` keeps the rows to emit.
    """

    keys: tuple[Field, ...]
    window: Window | None
    partials: tuple[Partial, ...]
    emit: Emit
    having: str | None
    outputs: tuple[Expression, ...]
    growth: Growth = field(default_factory=Growth, compare=False)
    ranks: tuple[Expression, ...] = ()
    qualify: str | None = None


@dataclass(frozen=True, slots=True)
class Meaning:
    """The session settings that change the result of a query. They are stored with the program: a re-run needs the
    same ones. ANSI mode is always on, and names are never case-sensitive."""

    time_zone: str = "UTC"


Host = Literal["shared", "epoch", "dedicated"]
OutputMode = Literal["append", "update"]
FEED = "feed"  # the kind and the name of the sink that hands rows to another query


@dataclass(frozen=True, slots=True)
class SparkQuery:
    """The part of a program that Spark runs in the commit of every epoch (the epoch host).

    `sql` is Spark SQL. It reads `relation`: the rows that the rings staged in the epoch, with the columns `staged`.
    `clocks` are the ranges of `sql` that call a clock, each with the name of the clock; the epoch's own clock replaces
    them. With `refresh_us`, static tables are kept that long; otherwise every epoch reads them. `tables` are the ranges
    of `sql` that name a table to keep, each with the name, and the alias that the query does not give it itself.
    """

    sql: str
    relation: str
    staged: Schema
    clocks: tuple[tuple[int, int, str], ...] = ()
    tables: tuple[tuple[int, int, str, str], ...] = ()
    refresh_us: int | None = None


@dataclass(frozen=True, slots=True)
class FeedInput:
    """A stream that a query on the dedicated host reads under the name `relation`. Ring 0 of the stream runs `ring0`,
    and hands rows with the columns `staged` to the query through a feed. `event_time` names the column of `staged` that
    has the event time, None if the stream has none; the watermark is `delay_us` behind it."""

    stream: str
    relation: str
    view: View
    ring0: Ring0Program
    staged: Schema
    event_time: str | None = None
    delay_us: int = 0


@dataclass(frozen=True, slots=True)
class DedicatedQuery:
    """The part of a program that a streaming query of its own runs (the dedicated host). `sql` is Spark SQL over the
    relations of `inputs`. With `distinct`, a row is emitted at its first occurrence only. `strategy` and `limit` say
    what happens when the query is slower than its streams (`headrace.sinks.feed_sink`)."""

    sql: str
    inputs: tuple[FeedInput, ...]
    mode: OutputMode = "append"
    distinct: bool = False
    strategy: str = "spill"
    limit: str = ""

    @property
    def closes(self) -> bool:
        """True if it waits for a watermark before it emits, so that the end of its input closes what is open."""
        return self.mode == "append" and any(given.event_time is not None for given in self.inputs)


Family = tuple[Meaning, Window | None, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class PipelineProgram:
    """A compiled pipeline. `view` lists the columns that must be decoded. Only the planner computes it.

    With `spark`, the rings do not write to the sinks: they stage rows, and Spark computes `output` from them. With
    `dedicated`, `stream`, `view` and `ring0` are those of its first input, and a query of its own computes `output`.
    """

    stream: str
    view: View
    ring0: Ring0Program
    ring1: Ring1Program | None
    output: Schema
    meaning: Meaning = field(default_factory=Meaning)
    spark: SparkQuery | None = None
    dedicated: DedicatedQuery | None = None

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads."""
        return (self.stream,) if self.dedicated is None else tuple(i.stream for i in self.dedicated.inputs)

    @property
    def host(self) -> Host:
        """Where the pipeline runs."""
        if self.dedicated is not None:
            return "dedicated"
        return "shared" if self.spark is None else "epoch"

    @property
    def logged(self) -> bool:
        """True if its windows emit once, when they close, and are no sessions: their state is a log."""
        ring1 = self.ring1
        return (
            ring1 is not None and ring1.emit == "close" and ring1.window is not None and ring1.window.kind != "session"
        )

    @property
    def family(self) -> Family | None:
        """The key of the family: pipelines of one stream with equal keys can share one aggregation pass in Ring 0.

        None for a pipeline that never shares a pass. Session windows never do: the filter decides which rows form a
        session. Neither do pipelines with generators: they aggregate the rows that they make.
        """
        window = self.ring0.window
        if self.ring1 is None or (window is not None and window.kind == "session"):
            return None
        if self.ring0.generators or not all(p.filtered for p in self.ring0.partials):
            return None
        return self.meaning, window, tuple(f"{k.sql} AS {k.type}" for k in self.ring0.keys)


K = TypeVar("K")


def families(programs: Mapping[K, PipelineProgram]) -> list[tuple[K, ...]]:
    """The pipelines that share an aggregation pass in Ring 0: each family of two or more, in the given order.

    Tasks, EXPLAIN and the budget all call this function. `programs` are the pipelines of one stream by any key. Only
    the pass is shared: every pipeline has its own lanes and state.
    """
    found: dict[Family, list[K]] = {}
    for key, program in programs.items():
        if program.family is not None:
            found.setdefault(program.family, []).append(key)
    return [tuple(members) for members in found.values() if len(members) > 1]


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column that is not in the records: `sql` computes it from the columns `reads` of the relation `rows`, which are
    all in the records. It is evaluated only when a pipeline needs it. A row on which it fails has a bad value.

    `lenient` is set if it finds these rows: it never fails, and is NULL exactly where `sql` fails or a column of
    `reads` is NULL. `text` is the user's own expression.
    """

    index: int
    sql: str
    reads: tuple[int, ...]
    meaning: Meaning
    text: str = field(compare=False)
    lenient: str = ""
    growth: Growth = field(default_factory=Growth, compare=False)


@dataclass(frozen=True, slots=True)
class StreamDef:
    """A declared stream. `options` are the texts of `WITH (...)`, already checked against source and format.

    `dead_letters` is where rejected records go under `on_error = 'dead_letter'`. `metadata` are the columns that the
    source fills, and `computed` those that are computed from others; the format decodes the rest from the bytes of a
    record. `padded` are the CHAR columns with their length: like Spark, the stream pads their values with spaces.
    """

    name: str
    schema: Schema
    event_time: int | None
    delay_us: int
    source: str
    format: str
    options: dict[str, str]
    sql: str = ""
    dead_letters: SinkDef | None = None
    metadata: tuple[MetadataColumn, ...] = ()
    computed: tuple[ComputedColumn, ...] = ()
    padded: tuple[tuple[int, int], ...] = ()

    @property
    def fed_by(self) -> str | None:
        """The pipeline whose output the stream is. None for a stream with a source of its own."""
        return self.options["pipeline"] if self.source == DERIVED else None

    @property
    def in_records(self) -> tuple[int, ...]:
        """The columns that the records hold, by full-schema index. The source fills or an expression computes the
        others."""
        filled = {m.index for m in self.metadata} | {c.index for c in self.computed}
        return tuple(i for i in range(len(self.schema)) if i not in filled)

    @property
    def record_schema(self) -> Schema:
        """The schema of the records: what a format reads."""
        held = self.in_records
        return self.schema if len(held) == len(self.schema) else Schema(tuple(self.schema[i] for i in held))

    def closed(self, view: View) -> View:
        """`view` with the columns, and the fields of columns, that its computed columns read."""
        whole = frozenset(range(len(self.schema)))
        columns = whole if view.columns is None else view.columns
        closed = columns | {r for c in self.computed if c.index in columns for r in c.reads}
        return view if view.columns is None and closed == whole else View.some(closed)


@dataclass(frozen=True, slots=True)
class MetadataColumn:
    """Column `index` of a stream holds the fact `key` that the source knows about a record, such as its offset."""

    index: int
    key: str


@dataclass(frozen=True, slots=True)
class SinkDef:
    """A declared sink."""

    name: str
    kind: str
    options: dict[str, str]
    sql: str = ""


@dataclass(frozen=True, slots=True)
class LateRows:
    """The sink for a pipeline's late rows. They have the columns of the stream that the pipeline reads."""

    sink: SinkDef
    outputs: tuple[Expression, ...]


MAX_GROUPS = 10_000_000
# A list of a million numbers takes 8 to 16 MB, which is about what a payload and a value may have.
MAX_GROUP_VALUES = 1_000_000


@dataclass(frozen=True, slots=True)
class PipelineDef:
    """One instance of a declared pipeline. `instance` is never reused (docs/design/2026-11-16-founding.md).

    `heir_of` is the instance whose lanes and state it took over, because it replaced a pipeline with the same Ring 1
    program. More than `max_groups` open groups stop it, and so do more than `max_group_values` values in a list of one
    group. `late` is None when late rows are only counted. `generation` counts how often it was started again: a sink
    that was detached in an earlier generation is written to again. `pooled` is false for instances of releases before
    pools: each of their lanes is a key of its own in Spark's state. `views` are those that its query reads, as they
    were when it was declared. `fresh` is the generation with which a query on the dedicated host last began without
    state.
    """

    name: str
    instance: int
    sinks: tuple[SinkDef, ...]
    program: PipelineProgram
    buckets: int
    sql: str = ""
    heir_of: int | None = None
    max_groups: int = MAX_GROUPS
    late: LateRows | None = None
    generation: int = stored_as("life", default=0)
    max_group_values: int = MAX_GROUP_VALUES
    pooled: bool = False
    views: tuple[ViewDef, ...] = ()
    fresh: int = 0

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads."""
        return self.program.streams

    def on_stream(self, stream: str) -> PipelineDef:
        """Its part in the plan of one of its streams. On the dedicated host that is a pipeline which writes to a feed,
        under the same instance; else it is the pipeline itself."""
        query = self.program.dedicated
        if query is None:
            return self
        given = next(i for i in query.inputs if i.stream.lower() == stream.lower())
        program = PipelineProgram(
            given.stream, given.view, given.ring0, ring1=None, output=given.staged, meaning=self.program.meaning
        )
        options = {"strategy": query.strategy} | ({"limit": query.limit} if query.limit else {})
        return replace(self, program=program, sinks=(SinkDef(FEED, FEED, options),), late=None, views=(), buckets=1)

    @property
    def outlets(self) -> tuple[tuple[SinkDef, Schema], ...]:
        """Every sink it writes to, with the columns written there. The sinks of its output come first."""
        late = () if self.late is None else ((self.late.sink, _columns(self.late.outputs)),)
        return (*((sink, self.program.output) for sink in self.sinks), *late)

    @property
    def run(self) -> str:
        """Tells this generation of the instance from the others."""
        return f"{self.instance}/{self.generation}"

    @property
    def lane(self) -> int:
        """The number that names its lanes and the key of its state."""
        return self.instance if self.heir_of is None else self.heir_of

    def inherits(self, old: PipelineDef) -> bool:
        """True if it can continue with the state of `old`: groups and partials have the same meaning in both."""
        mine, theirs = self.program, old.program
        return (
            mine.ring1 is not None
            and (mine.ring1, mine.ring0.keys, mine.meaning) == (theirs.ring1, theirs.ring0.keys, theirs.meaning)
            and mine.stream.lower() == theirs.stream.lower()
        )


def _columns(expressions: tuple[Expression, ...]) -> Schema:
    return Schema(tuple(Field(e.name, e.type) for e in expressions))


@dataclass(frozen=True, slots=True)
class ViewDef:
    """A declared view. `query` is the text that stands for it in queries, with the names of its columns in `columns`
    unless that is empty. `reads` are the streams and views that the text names. `output` has no columns while Spark has
    not checked the query."""

    name: str
    query: str
    columns: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    output: Schema = field(default_factory=lambda: Schema(()))
    sql: str = ""


@dataclass(frozen=True, slots=True)
class PipelineExit:
    """An instance that left the plan: its lanes get an eof, which emits what is open (`flush`) and forgets the state
    (`drop`) or keeps it for a later start. `number` is the end's own, from the counter of instances."""

    pipeline: PipelineDef
    flush: bool
    number: int = 0
    drop: bool = True

    @property
    def key(self) -> tuple[int, int]:
        """Tells one end of an instance from another: it may be started again and end again."""
        return self.pipeline.instance, self.number


@dataclass(frozen=True, slots=True)
class PlanVersion:
    """The pipelines of a stream at one moment. Immutable. With `ending` the finite source is over, and the first epoch
    of this version closes every window. If more input arrives, later epochs of this version are like any other.

    `left` are the instances that ended and whose eof may still be due: an epoch sends one to those in its plan's `left`
    and not in its predecessor's. Instances in `alone` are not aggregated with their family, while their cost is
    measured.
    """

    version: int
    stream: StreamDef
    pipelines: tuple[PipelineDef, ...]
    ending: bool = False
    left: tuple[PipelineExit, ...] = ()
    alone: tuple[int, ...] = ()

    @property
    def known(self) -> dict[int, PipelineDef]:
        """Every pipeline that an epoch may concern, by instance: those that left and those that run."""
        return {left.pipeline.instance: left.pipeline for left in self.left} | {p.instance: p for p in self.pipelines}

    @property
    def families(self) -> list[tuple[int, ...]]:
        """The instances that share a pass under this plan version, family by family."""
        return families({p.instance: p.program for p in self.pipelines if p.instance not in self.alone})

    @property
    def view(self) -> View:
        """The columns that any pipeline needs, and always the event time. Also those that computed columns read."""
        union = View.union(p.program.view for p in self.pipelines)
        parts = {c for p in self.pipelines for c in p.program.view.columns or () if c >= NESTED}
        if union.columns is None and parts:  # ALL has every column whole, and not the fields that others read
            union = View.some({*range(len(self.stream.schema)), *parts})
        event_time = self.stream.event_time
        return self.stream.closed(union if event_time is None else union | View.some([event_time]))
