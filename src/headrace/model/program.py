"""What a pipeline becomes: plain data that travels by value from the planner to the Spark tasks.

The planner (`headrace.sql`) makes a `PipelineProgram`; Ring 0 (`headrace.ring0`) runs its `ring0` part on decoded
batches, Ring 1 (`headrace.ring1`) its `ring1` part on partial aggregates. Nothing here imports an engine.

**The relations that the SQL strings speak about** (all of it is DuckDB SQL):

- Ring 0 expressions see the relation `rows`: one column `c<i>` per column of the stream's full schema, `i` being
  its index; columns that nobody needs are NULL of their type. `_t` (BIGINT) is the event time in microseconds
  since 1970 UTC, NULL when the stream has none.
- Ring 1 expressions see the relation `groups`: the keys as `k0, k1, ...`, the merged partials as `p0, p1, ...`, and,
  when there is a window, `window_start` and `window_end` (BIGINT microseconds). `p0` is always the number of rows
  in the group (its presence count).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headrace.model.codec import stored_as
from headrace.model.schema import BIGINT, BINARY, STRING, DataType, Field, Schema, View

# When a group speaks: once, when its window closes; whenever an epoch changed it; once, when it is first seen.
Emit = Literal["close", "changes", "first"]
MEMBER = "_member"
WindowKind = Literal["tumble", "hop", "cumulate", "session"]

# What a dead letter keeps of a rejected record. `column` is NULL for bad structure; `raw` is the record without its
# delimiter, as it stood in `origin` from byte `offset` on.
DEAD_LETTER = Schema(
    (
        Field("stream", STRING),
        Field("origin", STRING),
        Field("offset", BIGINT),
        Field("column", STRING),
        Field("reason", STRING),
        Field("raw", BINARY),
    )
)


@dataclass(frozen=True, slots=True)
class Expression:
    """A named, typed DuckDB expression. Its result is cast to `type` where it leaves DuckDB."""

    name: str
    type: DataType
    sql: str


@dataclass(frozen=True, slots=True)
class Partial:
    """One aggregate's partial state: made in Ring 0 by `sql`, merged anywhere by `merge`.

    `merge` is a DuckDB aggregate over the column `name` itself (for `p1`: `sum(p1)`), so merging is associative and
    can be repeated; both sides have `type`. `filtered` is `sql` over only those rows for which the column `_member` is
    true, without evaluating the arguments on the others: pipelines of one family fold the same rows in one pass. One
    without it is folded alone.
    """

    name: str
    type: DataType
    sql: str
    merge: str
    filtered: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """An event-time window; all lengths in microseconds.

    tumble: `size` = `slide`. hop: a row is in size/slide windows. cumulate: `size` is the longest, `slide` the step.
    session: `size` is the gap; a row exactly `gap` after the last one joins it. Windows are aligned to `offset`.
    """

    kind: WindowKind
    size: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.size <= 0 or self.slide <= 0:
            raise ValueError("a window's size and slide are positive")


@dataclass(frozen=True, slots=True)
class Condition:
    """One of the conditions that a filter joins by AND, and the columns that it reads, by full-schema index."""

    sql: str
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SizedValue:
    """A value that may be larger than what it is made of. `sql` is an upper bound of its bytes (DOUBLE), which is
    computed without making the value; `expression` is how the user wrote it."""

    expression: str
    sql: str


@dataclass(frozen=True, slots=True)
class Growth:
    """How many bytes a program makes of a row: see `headrace.exec.sizing`, which acts on it.

    A row takes the sum of `values` and `plain`, the bytes (DOUBLE) of outputs that are as large as their columns.
    `columns` bounds that without looking at rows: so many times the bytes of each column, and `fixed` bytes per row.
    It is None when only the rows can tell. `in_filter` says that the filter itself makes such values.
    """

    values: tuple[SizedValue, ...] = ()
    plain: str = "0"
    columns: dict[str, float] | None = field(default_factory=dict)
    fixed: float = 0.0
    in_filter: bool = False


@dataclass(frozen=True, slots=True)
class Ring0Program:
    """The stateless part: filter, then either `outputs` (no aggregate) or keys, window and partials.

    `filter_columns` are the columns that the filter reads, by full-schema index: they are decoded first. `conditions`
    are the filter's parts: which of them a bad value touches decides whether the filter may speak about its row.
    """

    filter: str | None
    outputs: tuple[Expression, ...] = ()
    keys: tuple[Expression, ...] = ()
    window: Window | None = None
    partials: tuple[Partial, ...] = ()
    filter_columns: tuple[int, ...] = ()
    conditions: tuple[Condition, ...] = ()
    # Not compared: it follows from the rest, but for the words that the user chose.
    growth: Growth = field(default_factory=Growth, compare=False)


@dataclass(frozen=True, slots=True)
class Ring1Program:
    """The stateful part: merge partials per (window, keys), then `having`, then `outputs`."""

    keys: tuple[Field, ...]
    window: Window | None
    partials: tuple[Partial, ...]
    emit: Emit
    having: str | None
    outputs: tuple[Expression, ...]
    growth: Growth = field(default_factory=Growth, compare=False)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What SQL text means besides its words: stored with the plan, because a re-run must mean the same."""

    ansi: bool = True
    time_zone: str = "UTC"
    case_sensitive: bool = False


Family = tuple[Meaning, Window | None, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class PipelineProgram:
    """All that running a pipeline takes. `view` is the planner's word on what must be decoded; nothing recomputes
    it."""

    stream: str
    view: View
    ring0: Ring0Program
    ring1: Ring1Program | None
    output: Schema
    meaning: Meaning = field(default_factory=Meaning)

    @property
    def family(self) -> Family | None:
        """What pipelines of one stream have in common that fold rows in one pass; None for one that runs alone.

        Sessions run alone: which rows form one depends on the filter.
        """
        window = self.ring0.window
        if self.ring1 is None or (window is not None and window.kind == "session"):
            return None
        if not all(p.filtered for p in self.ring0.partials):
            return None
        return self.meaning, window, tuple(f"{k.sql} AS {k.type}" for k in self.ring0.keys)


@dataclass(frozen=True, slots=True)
class StreamDef:
    """A declared stream. Options are the raw `WITH (...)` strings, already checked against source and format.

    `dead_letters` is where rejected records go under `on_error = 'dead_letter'`.
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


@dataclass(frozen=True, slots=True)
class SinkDef:
    """A declared sink."""

    name: str
    kind: str
    options: dict[str, str]
    sql: str = ""


@dataclass(frozen=True, slots=True)
class LateRows:
    """Where a pipeline's late rows go, and which columns of the stream they have: those that the pipeline reads."""

    sink: SinkDef
    outputs: tuple[Expression, ...]


MAX_GROUPS = 10_000_000


@dataclass(frozen=True, slots=True)
class PipelineDef:
    """A declared pipeline: one instance of it. `instance` is never reused (DESIGN section 8).

    `heir_of` is the instance whose lanes it took over, state and all: it replaced one with the same Ring 1 program.
    More than `max_groups` open groups stop it; `late` is None when late rows are only counted. `generation` counts how
    often it was started again: a sink that was detached in an earlier generation is written to again.
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

    @property
    def outlets(self) -> tuple[tuple[SinkDef, Schema], ...]:
        """Every sink it writes to, with the columns that go there; the first ones get its output."""
        late = () if self.late is None else ((self.late.sink, _columns(self.late.outputs)),)
        return (*((sink, self.program.output) for sink in self.sinks), *late)

    @property
    def run(self) -> str:
        """Tells this generation of the instance from the others."""
        return f"{self.instance}/{self.generation}"

    @property
    def lane(self) -> int:
        """What its lanes are called, and its state is kept under."""
        return self.instance if self.heir_of is None else self.heir_of

    def inherits(self, old: PipelineDef) -> bool:
        """Whether it can go on with the state of `old`: groups and partials mean the same in both."""
        mine, theirs = self.program, old.program
        return (
            mine.ring1 is not None
            and (mine.ring1, mine.ring0.keys, mine.meaning) == (theirs.ring1, theirs.ring0.keys, theirs.meaning)
            and mine.stream.lower() == theirs.stream.lower()
        )


def _columns(expressions: tuple[Expression, ...]) -> Schema:
    return Schema(tuple(Field(e.name, e.type) for e in expressions))


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
    """The pipelines of a stream at one moment; immutable. `ending` closes every window: the finite source is over.
    It does so once, in the first epoch under this version; should more input come, later epochs are like any other.

    `left` are the instances that ended and whose eof may still be due: an epoch sends one to those in its plan's `left`
    and not in its predecessor's. Instances in `alone` share no pass: what they cost is being measured.
    """

    version: int
    stream: StreamDef
    pipelines: tuple[PipelineDef, ...]
    ending: bool = False
    left: tuple[PipelineExit, ...] = ()
    alone: tuple[int, ...] = ()

    @property
    def known(self) -> dict[int, PipelineDef]:
        """Whom an epoch may be about, by instance: those who left, and those who run."""
        return {left.pipeline.instance: left.pipeline for left in self.left} | {p.instance: p for p in self.pipelines}

    @property
    def view(self) -> View:
        """The union of what the pipelines need; the event time is always in."""
        union = View.union(p.program.view for p in self.pipelines)
        event_time = self.stream.event_time
        return union if event_time is None else union | View.some([event_time])
