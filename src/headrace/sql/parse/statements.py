"""The statements of a script. `script.parse_script` creates them. The hub and the planner read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from headrace.errors import Span
from headrace.model.program import Emit
from headrace.model.schema import Schema
from headrace.sql.parse.syntax import ForeignQuery, Node, ParsedQuery

DropKind = Literal["stream", "sink", "pipeline", "view"]
ShowKind = Literal["streams", "sinks", "pipelines", "views"]
StopMode = Literal["graceful", "now"]
ExplainMode = Literal["plain", "verbose", "json", "formatted"]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement: its text without the semicolon, and its position in the script."""

    sql: str
    span: Span


@dataclass(frozen=True, slots=True)
class CreateStream(Statement):
    """CREATE STREAM. `event_time` is an index into `schema`. By such an index, `computed` has the expressions of
    computed columns, `padded` the lengths of CHAR columns, and `metadata` the facts that METADATA columns hold,
    with their position. `spans` has the position of each option."""

    name: str
    schema: Schema
    event_time: int | None
    delay_us: int
    options: dict[str, str]
    or_replace: bool = False
    if_not_exists: bool = False
    spans: Mapping[str, Span] = field(default_factory=dict)
    computed: Mapping[int, Node] = field(default_factory=dict)
    padded: Mapping[int, int] = field(default_factory=dict)
    metadata: Mapping[int, tuple[str, Span]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DerivedWatermark:
    """The WATERMARK clause of a stream that a pipeline feeds: an output column of the pipeline, and the delay."""

    column: str
    delay_us: int
    span: Span


@dataclass(frozen=True, slots=True)
class CreateDerivedStream(Statement):
    """CREATE STREAM name [(WATERMARK FOR column AS ...)] AS PIPELINE pipeline [WITH (options)]."""

    name: str
    pipeline: str
    pipeline_span: Span
    watermark: DerivedWatermark | None
    options: dict[str, str] = field(default_factory=dict)
    or_replace: bool = False
    if_not_exists: bool = False
    spans: Mapping[str, Span] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamOutlet:
    """STREAM name [(WATERMARK FOR column AS ...)] after the INTO of a pipeline. `text` is what the user wrote after
    STREAM."""

    name: str
    span: Span
    watermark: DerivedWatermark | None
    text: str


@dataclass(frozen=True, slots=True)
class Outlets:
    """The targets after the INTO of a pipeline: the names of sinks, streams, and SPARK READER."""

    sinks: tuple[str, ...]
    spans: tuple[Span, ...]
    streams: tuple[StreamOutlet, ...]
    reader: Span | None


@dataclass(frozen=True, slots=True)
class CreateSink(Statement):
    """CREATE SINK."""

    name: str
    options: dict[str, str]
    or_replace: bool = False
    if_not_exists: bool = False
    spans: Mapping[str, Span] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatePipeline(Statement):
    """CREATE PIPELINE name INTO outlets [WITH (options)] AS query [EMIT CHANGES | EMIT ON CLOSE].

    An outlet is the name of a sink, STREAM and the name of a stream, or SPARK READER: `sinks`, `streams` and `reader`,
    which is the position of SPARK READER. `into` is the position of all of them. `emit` is None without an EMIT clause.
    """

    name: str
    sinks: tuple[str, ...]
    query: ParsedQuery | ForeignQuery
    query_sql: str
    emit: Emit | None
    or_replace: bool = False
    if_not_exists: bool = False
    sink_spans: tuple[Span, ...] = ()
    emit_span: Span | None = None
    options: dict[str, str] = field(default_factory=dict)
    spans: Mapping[str, Span] = field(default_factory=dict)
    query_start: int = 0
    streams: tuple[StreamOutlet, ...] = ()
    into: Span | None = None
    reader: Span | None = None

    @property
    def query_end(self) -> int:
        """Where the text of the query ends in the script."""
        return self.query_start + len(self.query_sql)


@dataclass(frozen=True, slots=True)
class CreateView(Statement):
    """CREATE VIEW name [(columns)] AS query."""

    name: str
    columns: tuple[str, ...]
    query: ParsedQuery | ForeignQuery
    query_sql: str
    query_start: int
    or_replace: bool = False
    if_not_exists: bool = False

    @property
    def body(self) -> Select:
        """The query as a statement."""
        at = self.span
        place = Span(at.text, self.query_start, self.query_start + len(self.query_sql), at.statement)
        return Select(
            self.query_sql,
            place,
            query=self.query,
            query_sql=self.query_sql,
            emit=None,
            query_start=self.query_start,
        )


@dataclass(frozen=True, slots=True)
class Select(Statement):
    """A query without a pipeline: it is explained, or a hub shows some of its rows. Then it may have options."""

    query: ParsedQuery | ForeignQuery
    query_sql: str
    emit: Emit | None
    emit_span: Span | None = None
    query_start: int = 0
    options: dict[str, str] = field(default_factory=dict)
    spans: Mapping[str, Span] = field(default_factory=dict)

    @property
    def query_end(self) -> int:
        """Where the text of the query ends in the script."""
        return self.query_start + len(self.query_sql)


@dataclass(frozen=True, slots=True)
class AlterPipeline(Statement):
    """ALTER PIPELINE name SET (options) | INTO sinks | AS query.

    `sinks` and `query` are the new text of these parts, empty if they stay.
    """

    name: str
    options: dict[str, str] = field(default_factory=dict)
    spans: Mapping[str, Span] = field(default_factory=dict)
    sinks: str = ""
    query: str = ""


@dataclass(frozen=True, slots=True)
class Drop(Statement):
    """DROP STREAM | SINK | PIPELINE | VIEW [IF EXISTS] name [CASCADE]. With `cascade` also what reads it, directly or
    through others: pipelines, views, and the streams that these pipelines feed."""

    kind: DropKind
    name: str
    if_exists: bool
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class Show(Statement):
    """SHOW STREAMS | SINKS | PIPELINES | VIEWS."""

    kind: ShowKind


@dataclass(frozen=True, slots=True)
class ShowCreate(Statement):
    """SHOW CREATE STREAM | SINK | PIPELINE | VIEW name."""

    kind: DropKind
    name: str


@dataclass(frozen=True, slots=True)
class Describe(Statement):
    """DESCRIBE [STREAM | SINK | PIPELINE | VIEW] name. `kind` is None when it is not given."""

    kind: DropKind | None
    name: str


@dataclass(frozen=True, slots=True)
class StartPipeline(Statement):
    """START PIPELINE name."""

    name: str


@dataclass(frozen=True, slots=True)
class StopPipeline(Statement):
    """STOP PIPELINE name [GRACEFUL [CLOSE WINDOWS | KEEP WINDOWS] | NOW]. `close_windows` emits open windows."""

    name: str
    mode: StopMode
    close_windows: bool = False


@dataclass(frozen=True, slots=True)
class TakeSavepoint(Statement):
    """SAVEPOINT name [OF STREAM stream]. Without a stream it covers all streams."""

    name: str
    stream: str | None


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """EXPLAIN [VERBOSE | JSON | FORMATTED] of a query, of a CREATE PIPELINE, or (`pipeline`) of an existing pipeline by
    name."""

    mode: ExplainMode
    target: Select | CreatePipeline | None
    pipeline: str | None = None
