"""What the planner asks Spark about a query that Spark will run. The hub passes in an implementation with a session.

Planning itself needs no JVM: without a checker the planner plans such a query as far as it can, and Spark checks it
when the pipeline is created on a hub.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from headrace.model.program import OutputMode, SessionVariable
from headrace.model.schema import Schema
from headrace.sql.plan.event_times import TimeOrigin

BlockerKind = Literal["stateful", "sort", "random", "join"]


@dataclass(frozen=True, slots=True)
class Blocker:
    """A part of a query that gives other rows when the stream is cut into other epochs, or when an epoch is run again.

    `what` describes it. `expression` is its text in Spark's spelling, and `at` its range in the checked text, if Spark
    knows it. `advice` replaces that of its kind.
    """

    kind: BlockerKind
    what: str
    expression: str = ""
    at: tuple[int, int] | None = None
    advice: str = ""


@dataclass(frozen=True, slots=True)
class StaticTable:
    """A table, view or path that the query reads beside the stream. `at` is the range of its name in the checked text.
    `aliased` says that the query gives it another name."""

    name: str
    at: tuple[int, int]
    aliased: bool


@dataclass(frozen=True, slots=True)
class SparkFindings:
    """What Spark's analyzer and optimizer say about a query over one relation.

    `columns` are the columns of the relation that it needs, by index. `conditions` are filters, in Spark SQL, that all
    rows must pass; their columns are qualified by `qualifier`, if that is not empty. `blocker` says why the query
    cannot run epoch by epoch. `plan` is Spark's formatted plan. `passed` are the output columns that pass on a column
    of the relation, or a field of one, by their index: (column, field or "").
    """

    output: Schema
    columns: tuple[int, ...]
    conditions: tuple[str, ...]
    qualifier: str
    tables: tuple[StaticTable, ...]
    blocker: Blocker | None
    plan: str
    passed: Mapping[int, tuple[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamRelation:
    """A stream that a query on the dedicated host reads. `event_time` names its column, None without one."""

    name: str
    schema: Schema
    event_time: str | None = None
    delay_us: int = 0


@dataclass(frozen=True, slots=True)
class StreamingFindings:
    """What Spark says about a query over streams that runs as a streaming query.

    `mode` is the first of the wanted output modes that Spark allows. `distinct` says that the query is a DISTINCT of
    rows, which are to be emitted at their first occurrence. `conditions` are filters, by relation, with the qualifier
    of their columns: all rows of the relation that matter pass them. `blocker` says why no host can run the query.
    `times` are the output columns that are an event time. A query that is `stateless` remembers nothing of earlier
    batches. `variables` are those of the session that it reads.
    """

    output: Schema
    mode: OutputMode
    distinct: bool
    conditions: dict[str, tuple[tuple[str, ...], str]]
    blocker: Blocker | None
    plan: str
    times: Mapping[int, TimeOrigin] = field(default_factory=dict)
    stateless: bool = False
    variables: tuple[SessionVariable, ...] = ()


class SparkChecker(Protocol):
    """Asks Spark. Any thread may call."""

    @property
    def at_hand(self) -> bool:
        """True if a session runs. Otherwise the first `check` starts one."""
        ...

    def check(self, sql: str, relation: str, schema: Schema) -> SparkFindings:
        """Analyze a query over a relation of this name and schema. Runs nothing. Raises SparkRefused; its parameter
        `at` is the range in `sql` that Spark points at, if it does."""
        ...

    def check_streaming(
        self, sql: str, relations: Sequence[StreamRelation], modes: Sequence[OutputMode]
    ) -> StreamingFindings:
        """Analyze a query over streams, for the dedicated host. Runs nothing. Raises SparkRefused, as `check` does, and
        UnsupportedStateful for what Spark's streaming refuses in all of the output modes."""
        ...
