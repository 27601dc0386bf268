"""Statements that only read: SHOW, SHOW CREATE, DESCRIBE and EXPLAIN."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatchmethod

from headrace.errors import InternalError
from headrace.hub.describe import describe, show
from headrace.hub.lookup import is_declared, require, require_pipeline, statement_of
from headrace.hub.observed import ObservedStreams, live_stream
from headrace.hub.results import Result, table_result
from headrace.model.program import Meaning
from headrace.sql import (
    CreatePipeline,
    Describe,
    Explain,
    Show,
    ShowCreate,
    Statement,
    explain,
    explain_json,
    parse_script,
    plan_pipeline,
)
from headrace.sql.hosts.spark_checker import SparkChecker
from headrace.state.catalog import Catalog

QUESTIONS = (Show, ShowCreate, Describe, Explain)


@dataclass(frozen=True, slots=True)
class Questions:
    """Answers SHOW, DESCRIBE and EXPLAIN from a catalog, and from `streams` if there are any."""

    catalog: Catalog
    meaning: Meaning
    streams: ObservedStreams | None
    spark: SparkChecker | None = None

    @singledispatchmethod
    def answer(self, statement: Statement) -> Result:
        """The answer to one statement. Raises InternalError if it is none of QUESTIONS."""
        raise InternalError(f"{type(statement).__name__} is not a question", span=statement.span)

    @answer.register
    def _(self, statement: Show) -> Result:
        if self.streams is not None:
            return show(self.streams, self.catalog, statement.kind)
        rows: list[list[object]] = [[name] for name in getattr(self.catalog, f"{statement.kind[:-1]}_names")()]
        return table_result(["name"], rows)

    @answer.register
    def _(self, statement: ShowCreate) -> Result:
        require(self.catalog, statement.kind, statement.name, statement.span)
        return Result(f"{statement_of(self.catalog, statement.kind, statement.name)};")

    @answer.register
    def _(self, statement: Describe) -> Result:
        kinds = [statement.kind] if statement.kind else ["stream", "sink", "pipeline", "view"]
        kind = next((k for k in kinds if is_declared(self.catalog, k, statement.name)), None)
        if kind is None:
            require(self.catalog, statement.kind or "stream", statement.name, statement.span)
        if self.streams is None:
            return Result(f"{statement_of(self.catalog, str(kind), statement.name)};")
        return describe(self.streams, self.catalog, str(kind), statement.name)

    @answer.register
    def _(self, statement: Explain) -> Result:
        target, catalog = statement.target, self.catalog
        if target is None:
            record = require_pipeline(self.catalog, statement.pipeline or "", statement.span)
            parsed = parse_script(record.definition.sql)[0]
            if not isinstance(parsed, CreatePipeline):
                raise InternalError(f"the text of pipeline {record.definition.name} is not a CREATE PIPELINE")
            target, catalog = parsed, self.catalog.with_views(record.definition.views)
        # EXPLAIN does not start Spark, except for its formatted plan.
        spark = self.spark if self.spark is not None and (self.spark.at_hand or statement.mode == "formatted") else None
        planned = plan_pipeline(target, catalog, self.meaning, spark)
        if statement.target is None:  # it may feed streams that were declared after it
            planned = replace(planned, sinks=record.definition.sinks)
        live = live_stream(self.streams, planned.program.stream)
        if statement.mode == "json":
            return Result(explain_json(planned, live))
        return Result(explain(planned, live, mode=statement.mode))
