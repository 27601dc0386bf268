"""Turns SQL text into programs, without a JVM.

parse_script(text)                  -> statements
define_stream / define_sink(stmt)   -> definitions, options checked
plan_pipeline(stmt, names, meaning) -> Planned, with the host and the PipelineProgram
"""

from __future__ import annotations

from headrace.sql.altering import altered
from headrace.sql.define import define_sink, define_stream
from headrace.sql.explain.as_json import explain_json
from headrace.sql.explain.explain_text import explain
from headrace.sql.explain.implicit_casts import implicit_cast_warnings
from headrace.sql.explain.live_stream import LiveStream
from headrace.sql.names import Names
from headrace.sql.parse.dialect import statement_ends
from headrace.sql.parse.script import cut_limit, parse_script
from headrace.sql.parse.statements import (
    AlterPipeline,
    CreateDerivedStream,
    CreatePipeline,
    CreateSink,
    CreateStream,
    CreateView,
    Describe,
    Drop,
    Explain,
    Select,
    Show,
    ShowCreate,
    StartPipeline,
    Statement,
    StopPipeline,
    TakeSavepoint,
)
from headrace.sql.planner import Planned, plan_on_shared_host, plan_pipeline
from headrace.sql.views import define_view

__all__ = [
    "AlterPipeline",
    "CreateDerivedStream",
    "CreatePipeline",
    "CreateSink",
    "CreateStream",
    "CreateView",
    "Describe",
    "Drop",
    "Explain",
    "LiveStream",
    "Names",
    "Planned",
    "Select",
    "Show",
    "ShowCreate",
    "StartPipeline",
    "Statement",
    "StopPipeline",
    "TakeSavepoint",
    "altered",
    "cut_limit",
    "define_sink",
    "define_stream",
    "define_view",
    "explain",
    "explain_json",
    "implicit_cast_warnings",
    "parse_script",
    "plan_on_shared_host",
    "plan_pipeline",
    "statement_ends",
]
