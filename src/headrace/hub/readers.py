"""Readers: pipelines whose rows a streaming query of the user reads, `hub.spark.readStream.format("headrace")`.

A reader is a pipeline INTO SPARK READER: its only outlet is a feed. A user may declare one and name it in the option
`pipeline`. With the option `stream` the hub declares one when the user's query starts, so a frame that is only loaded
costs nothing. A reader stays until it is dropped: the user's query may be restarted at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.base.unknown import unknown
from headrace.errors import BadOption, UnknownPipeline, UnknownStream
from headrace.hub.reconciler import Reconciler
from headrace.hub.results import Result
from headrace.model.schema import Schema
from headrace.sinks.feed_log import feed_directory
from headrace.sql import CreatePipeline, parse_script, plan_pipeline
from headrace.state.reader_calls import ReaderCall, ReaderCalls, ReaderPlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = ("stream", "columns", "name", "backpressure", "feed_limit", "pipeline")
_FOR_STREAM = ("columns", "name", "backpressure", "feed_limit")


class Readers:
    """Answers the data source. `sql` and `check` are those of the hub. Any thread may call."""

    def __init__(
        self, reconciler: Reconciler, sql: Callable[[str], list[Result]], check: Callable[[str], list[Result]]
    ) -> None:
        self._reconciler, self._sql, self._check = reconciler, sql, check
        self._calls: ReaderCalls | None = None

    def register(self, session: SparkSession) -> None:
        """Make the format known to a session."""
        from headrace.spark.reader_source import register_readers

        with self._reconciler.lock:
            if self._calls is None:
                self._calls = ReaderCalls(self.place)
        register_readers(session, self._calls.port, self._calls.token)

    def close(self) -> None:
        """Answer no more calls."""
        if self._calls is not None:
            self._calls.close()

    def place(self, call: ReaderCall) -> ReaderPlace:
        """The pipeline that a query with these options reads. Raises a coded error for options that are wrong."""
        options = _checked(call.options)
        if "pipeline" in options:
            return self._declared(options["pipeline"])
        statement = self._statement(options)
        parsed = _one_statement(statement)
        if call.opening:
            self._sql(statement)
            return self._declared(parsed.name)
        self._check(statement)
        return ReaderPlace("", 0, "", _ddl(self._columns(parsed)))

    def _declared(self, name: str) -> ReaderPlace:
        catalog = self._reconciler.catalog
        found = catalog.pipeline(name)
        if found is None:
            raise unknown(UnknownPipeline, "pipeline", name, catalog.pipeline_names())
        definition = found.definition
        if not definition.has_reader:
            raise BadOption(
                f"pipeline {definition.name} has no outlet for readers",
                advice="Declare it with CREATE PIPELINE ... INTO SPARK READER AS ..., or use the option 'stream'.",
                option="pipeline",
            )
        directory = feed_directory(self._reconciler.stream_directory(definition.program.stream), definition.instance)
        return ReaderPlace(definition.name, definition.instance, str(directory), _ddl(definition.program.output))

    def _columns(self, statement: CreatePipeline) -> Schema:
        found = plan_pipeline(statement, self._reconciler.catalog, self._reconciler.meaning).program.output
        if not len(found):
            raise BadOption(
                "option 'columns' has an expression that only Spark can evaluate",
                advice="Name columns only, and evaluate the expression in your query.",
                option="columns",
            )
        return found

    def _statement(self, options: Mapping[str, str]) -> str:
        """The declaration of the pipeline."""
        catalog = self._reconciler.catalog
        stream = catalog.stream(options["stream"])
        if stream is None:
            raise unknown(UnknownStream, "stream", options["stream"], [s.name for s in catalog.streams.values()])
        columns = options.get("columns") or ", ".join(_quoted(f.name) for f in stream.schema)
        name = options.get("name") or f"{stream.name}_reader"
        given = [f"{n} = '{_escaped(options[n])}'" for n in ("backpressure", "feed_limit") if n in options]
        chosen = f" WITH ({', '.join(given)})" if given else ""
        query = f"SELECT {columns} FROM {_quoted(stream.name)}"
        return f"CREATE PIPELINE {_quoted(name)} INTO SPARK READER{chosen} AS {query}"


def _checked(given: Mapping[str, str]) -> dict[str, str]:
    options = {name.lower(): value for name, value in given.items() if name.lower() != "path"}
    for name in options:
        if name not in OPTIONS:
            raise unknown(BadOption, "option", name, OPTIONS, of="format headrace")
    if ("stream" in options) == ("pipeline" in options):
        raise BadOption(
            "the format headrace needs one of the options 'stream' and 'pipeline'",
            advice="'stream' names a stream, and 'pipeline' a pipeline INTO SPARK READER.",
            option="stream",
        )
    useless = [name for name in _FOR_STREAM if name in options and "pipeline" in options]
    if useless:
        raise BadOption(
            f"option '{useless[0]}' has no effect: the pipeline says what is read",
            advice=f"Remove '{useless[0]}'.",
            option=useless[0],
        )
    return options


def _one_statement(text: str) -> CreatePipeline:
    """The declaration of a reader. Options are part of its text, and must not bring statements of their own."""
    found = parse_script(text)
    if len(found) == 1 and isinstance(found[0], CreatePipeline):
        return found[0]
    raise BadOption(
        "option 'columns' is not a list of columns",
        advice="Write the names of columns, separated by commas.",
        option="columns",
    )


def _escaped(value: str) -> str:
    return value.replace("'", "''")


def _ddl(columns: Schema) -> str:
    return ", ".join(f"{_quoted(f.name)} {f.type.ddl}" for f in columns)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
