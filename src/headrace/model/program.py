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
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from headrace.model.schema import DataType, Field, Schema, View

# When a group is emitted: once, when its window closes; in every epoch that changed it; once, when it first appears.
Emit = Literal["close", "changes", "first"]
MEMBER = "_member"
WindowKind = Literal["tumble", "hop", "cumulate", "session"]


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
    reach it, and `columns` are those that it reads, by full-schema index.

    It reads the rows that the first `after` generators make. `made` are the names of their columns among `columns`,
    whose indexes come after those of the stream."""

    text: str
    sql: str
    columns: tuple[int, ...]
    after: int = 0
    made: tuple[str, ...] = ()


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
    """Turns each row into several: one for each element of the lists `columns`, which have the same length in a row.

    `filter` drops input rows first. The output rows copy the columns `kept` from their input row. The new columns have
    the names of `columns`, and the type of the elements. With `outer`, a row without elements gives one row of NULLs.
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
class SessionVariable:
    """A variable of the Spark session that a query reads: its type and value in Spark SQL, when it was planned."""

    name: str
    type: str
    value: str


@dataclass(frozen=True, slots=True)
class DedicatedQuery:
    """The part of a program that a streaming query of its own runs (the dedicated host). `sql` is Spark SQL over the
    relations of `inputs`. With `distinct`, a row is emitted at its first occurrence only. `strategy` and `limit` say
    what happens when the query is slower than its streams (`headrace.sinks.feed_sink`). `variables` keep their values
    for as long as the pipeline is declared: state that was made with one value must not meet another. A query that is
    `stateless` remembers nothing of earlier batches."""

    sql: str
    inputs: tuple[FeedInput, ...]
    mode: OutputMode = "append"
    distinct: bool = False
    strategy: str = "spill"
    limit: str = ""
    variables: tuple[SessionVariable, ...] = ()
    stateless: bool = field(default=False, compare=False)  # follows from `sql`

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
        """True if its windows emit once, when they close, and are not sessions: their state is a log."""
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
