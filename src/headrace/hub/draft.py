"""The effect of a script on the catalog, computed before anything happens.

A draft starts from a catalog and applies statements to a copy. It reads no disk, except where sources and sinks check
their options, and it starts nothing. It ends in a catalog that can be saved whole, or raises an error with a code.
`hub.check` stops here; `hub.sql` passes the effects to the reconciler.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.errors import (
    InternalError,
)
from headrace.hub.draft_drops import drop
from headrace.hub.draft_pipelines import create_pipeline, planned_pipeline
from headrace.hub.draft_running import select, start_pipeline, stop_pipeline, take_savepoint
from headrace.hub.draft_state import DraftState
from headrace.hub.draft_streams import create_derived_stream, create_sink, create_stream
from headrace.hub.draft_views import create_view
from headrace.hub.lookup import (
    require_pipeline,
)
from headrace.hub.questions import QUESTIONS, Questions
from headrace.hub.results import Result
from headrace.model.definitions import PipelineDef, SinkDef
from headrace.sql import (
    AlterPipeline,
    CreateDerivedStream,
    CreatePipeline,
    CreateSink,
    CreateStream,
    CreateView,
    Drop,
    Select,
    StartPipeline,
    Statement,
    StopPipeline,
    TakeSavepoint,
    altered,
)


@dataclass(slots=True)
class Draft(DraftState):
    """Applies statements to a copy of a catalog. Not thread-safe. `DraftState` describes the fields."""

    def apply(self, statement: Statement) -> Result:
        """Apply one statement, and return the answer for the user."""
        if isinstance(statement, QUESTIONS):
            return Questions(self.catalog, self.meaning, self.streams, self.spark).answer(statement)

        match statement:
            case CreateStream():
                return create_stream(self, statement)
            case CreateDerivedStream():
                return create_derived_stream(self, statement)
            case CreateSink():
                return create_sink(self, statement)
            case CreateView():
                return create_view(self, statement)
            case CreatePipeline():
                return create_pipeline(self, statement)
            case AlterPipeline():
                record = require_pipeline(self.catalog, statement.name, statement.span)
                return self.apply(altered(record.definition.sql, statement))
            case Drop():
                return drop(self, statement)
            case StartPipeline():
                return start_pipeline(self, statement)
            case StopPipeline():
                return stop_pipeline(self, statement)
            case TakeSavepoint():
                return take_savepoint(self, statement)
            case Select():
                return select(self, statement)
        raise InternalError(f"no way to run {type(statement).__name__}", span=statement.span)

    def planned_select(self, statement: Select, name: str, sink: SinkDef) -> PipelineDef:
        """A query as a pipeline into one sink, which is not declared yet."""
        created = CreatePipeline(
            sql=statement.sql,
            span=statement.span,
            name=name,
            sinks=(sink.name,),
            query=statement.query,
            query_sql=statement.query_sql,
            emit=statement.emit,
            sink_spans=(statement.span,),
            emit_span=statement.emit_span,
            query_start=statement.query_start,
        )
        return planned_pipeline(replace(self, catalog=self.catalog.with_sink(sink)), created)
