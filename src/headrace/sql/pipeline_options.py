"""The options of CREATE PIPELINE: `WITH (host = ..., max_groups = ..., late_sink = ...)`."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.options import Option, choice, duration, integer, size, text
from headrace.base.unknown import unknown
from headrace.errors import BadOption, DuplicateName, UnknownSink
from headrace.model.definitions import MAX_GROUP_VALUES, MAX_GROUPS, LateRows, StreamDef
from headrace.model.program import Expression, Host, PipelineProgram
from headrace.model.schema import Array, field_at
from headrace.sql.define import checked_options
from headrace.sql.names import Names
from headrace.sql.parse.statements import CreatePipeline, Select

PIPELINE_OPTIONS = (
    Option(
        "host",
        choice("shared", "epoch", "dedicated"),
        help="the host that runs the query: 'shared', 'epoch' or 'dedicated'; without it the planner chooses",
    ),
    Option(
        "backpressure",
        choice("spill", "pause", "drop"),
        default="spill",
        help="what happens when a query on the dedicated host, or a Spark reader, is slower than its streams: 'spill' "
        "keeps rows on disk up to feed_limit and then pauses the streams (default), 'pause' pauses them early, 'drop' "
        "drops rows and counts them",
    ),
    Option(
        "feed_limit",
        size,
        help="how many bytes may wait for a query on the dedicated host, or for a Spark reader (default 4GB with "
        "'spill', else 64MB)",
    ),
    Option(
        "static_refresh",
        duration,
        help="how long a copy of the static tables that the query reads is used; without it every epoch reads them",
    ),
    Option(
        "max_groups",
        integer(1, 1 << 60),
        default=MAX_GROUPS,
        help="the most groups that the pipeline may keep as state; beyond it the pipeline stops with TOO_MANY_GROUPS",
    ),
    Option(
        "max_group_values",
        integer(1, 1 << 31),
        default=MAX_GROUP_VALUES,
        help="the most values that one group may keep in a list; beyond it the pipeline stops with TOO_MANY_VALUES",
    ),
    Option("late_sink", text, help="the sink for rows that arrive too late; without it late rows are only counted"),
)


@dataclass(frozen=True)
class PipelineOptions:
    """The options of one pipeline, parsed."""

    max_groups: int = MAX_GROUPS
    max_group_values: int = MAX_GROUP_VALUES
    late: LateRows | None = None
    static_refresh: int | None = None
    backpressure: str = "spill"
    feed_limit: str = ""


def chosen_host(statement: CreatePipeline | Select) -> Host | None:
    """The host that the statement names. Raises BadOption for another value."""
    if isinstance(statement, Select) or "host" not in statement.options:
        return None
    values = checked_options("a pipeline", PIPELINE_OPTIONS, statement, {"host": statement.options["host"]})
    host: Host = values["host"]
    return host


def read_pipeline_options(
    statement: CreatePipeline, program: PipelineProgram, stream: StreamDef, names: Names, checked: bool = True
) -> PipelineOptions:
    """The options of a pipeline. Raises a coded error at an option that is wrong or has no effect. `checked` says that
    the program names all static tables."""
    values = checked_options("a pipeline", PIPELINE_OPTIONS, statement, statement.options)
    if "static_refresh" in statement.options and checked and (program.spark is None or not program.spark.tables):
        raise BadOption(
            "static_refresh has no effect: the query reads no static table",
            advice="Remove static_refresh.",
            span=statement.spans["static_refresh"],
            option="static_refresh",
        )
    for name in ("backpressure", "feed_limit"):
        if name in statement.options and program.dedicated is None and statement.reader is None:
            raise BadOption(
                f"{name} has no effect: the query runs on the {program.host} host",
                advice=f"Remove {name}, or use WITH (host = 'dedicated').",
                span=statement.spans[name],
                option=name,
            )
    if "max_groups" in statement.options and program.ring1 is None:
        raise BadOption(
            "max_groups has no effect: the query keeps no groups",
            advice="Remove max_groups.",
            span=statement.spans["max_groups"],
            option="max_groups",
        )
    lists = () if program.ring1 is None else [p for p in program.ring1.partials if isinstance(p.type, Array)]
    if "max_group_values" in statement.options and not lists:
        raise BadOption(
            "max_group_values has no effect: the query keeps no lists of values",
            advice="Remove max_group_values.",
            span=statement.spans["max_group_values"],
            option="max_group_values",
        )
    late = (
        None
        if values["late_sink"] is None
        else _late_rows(statement=statement, name=str(values["late_sink"]), program=program, stream=stream, names=names)
    )
    return PipelineOptions(
        int(values["max_groups"]),
        int(values["max_group_values"]),
        late=late,
        static_refresh=values["static_refresh"],
        backpressure=values["backpressure"],
        feed_limit=str(statement.options.get("feed_limit", "")),
    )


def _late_rows(
    statement: CreatePipeline, name: str, program: PipelineProgram, stream: StreamDef, names: Names
) -> LateRows:
    span = statement.spans["late_sink"]
    sink = names.sink(name)
    if sink is None:
        raise unknown(UnknownSink, "sink", name, names.sink_names(), span=span)
    if name.lower() in [s.lower() for s in statement.sinks]:
        raise DuplicateName(
            f"sink '{name}' already receives the results",
            advice="Use a different sink for late rows.",
            span=span,
            name=name,
        )
    if program.ring0.window is None:
        raise BadOption(
            "late_sink has no effect: without a window no row is late",
            advice="Remove late_sink, or group by a window.",
            span=span,
            option="late_sink",
        )
    read = set(program.view.indexes(len(stream.schema))) | {stream.event_time}
    columns = sorted(i for i in read if i is not None)
    fields = [field_at(stream.schema, i) for i in columns]
    outputs = (Expression(f.name, f.type, f"c{i}") for i, f in zip(columns, fields, strict=True))
    return LateRows(sink, tuple(outputs))
