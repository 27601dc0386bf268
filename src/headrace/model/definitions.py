"""What is declared: streams, sinks, views and instances of pipelines, as the catalog stores them.

Plain data, like the programs in `headrace.model.program` that pipelines hold. `headrace.state.catalog` keeps the
declarations of a hub."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headrace.model.codec import stored_as
from headrace.model.program import Expression, Growth, Meaning, PipelineProgram
from headrace.model.schema import BIGINT, BINARY, STRING, Field, Schema, View

DERIVED = "pipeline"  # the source of a stream that a pipeline feeds
FEED = "feed"  # the kind and the name of the sink that hands rows to another query
SPARK_READER = "spark reader"  # the name of the feed that user code reads, hub.spark.readStream
MAX_GROUPS = 10_000_000
# A list of a million numbers takes 8 to 16 MB, which is about what a payload and a value may have.
MAX_GROUP_VALUES = 1_000_000

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
class SinkDef:
    """A declared sink."""

    name: str
    kind: str
    options: dict[str, str]
    sql: str = ""


@dataclass(frozen=True, slots=True)
class MetadataColumn:
    """Column `index` of a stream holds the fact `key` that the source knows about a record, such as its offset."""

    index: int
    key: str


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
        """The columns that the records contain, by full-schema index. The others are filled by the source, or
        computed."""
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
class LateRows:
    """The sink for a pipeline's late rows. They have the columns of the stream that the pipeline reads."""

    sink: SinkDef
    outputs: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class PipelineDef:
    """One instance of a declared pipeline. `instance` is never reused (docs/design/2026-11-16-founding.md).

    `heir_of` is the instance whose lanes and state it took over, because it replaced a pipeline with the same Ring 1
    program. More than `max_groups` open groups stop it, and so do more than `max_group_values` values in a list of one
    group. `late` is None when late rows are only counted. `generation` counts how often it was started again: a sink
    that was detached in an earlier generation is written to again. `pooled` is false for instances of releases before
    pools: each of their lanes is a key of its own in Spark's state. `spread` is false for instances of releases whose
    pools could share a partition (`headrace.bridge.pools`). `views` are those that its query reads, as they
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
    spread: bool = False

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
    def has_reader(self) -> bool:
        """True if user code reads its rows: hub.spark.readStream."""
        return any((sink.kind, sink.name) == (FEED, SPARK_READER) for sink in self.sinks)

    @property
    def outlets(self) -> tuple[tuple[SinkDef, Schema], ...]:
        """Every sink it writes to, with the columns written there. The sinks of its output come first."""
        output = self.program.output
        found = tuple([(sink, output) for sink in self.sinks])
        return found if self.late is None else (*found, (self.late.sink, _columns(self.late.outputs)))

    @property
    def run(self) -> str:
        """Identifies this generation of the instance."""
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
