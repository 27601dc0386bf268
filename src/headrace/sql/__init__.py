"""SQL text to programs, without a JVM.

parse_script(text)                  -> statements
define_stream / define_sink(stmt)   -> definitions, options checked
plan_pipeline(stmt, names, meaning) -> Planned, with the PipelineProgram
"""

from __future__ import annotations

from headrace.sql.define import define_sink, define_stream
from headrace.sql.dialect import statement_ends
from headrace.sql.explain import explain
from headrace.sql.explain_json import explain_json
from headrace.sql.live import LiveStream
from headrace.sql.names import Names, ScriptNames
from headrace.sql.planner import Planned, plan_pipeline
from headrace.sql.script import parse_script
from headrace.sql.statements import (
    CreatePipeline,
    CreateSink,
    CreateStream,
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

__all__ = [
    "CreatePipeline",
    "CreateSink",
    "CreateStream",
    "Describe",
    "Drop",
    "Explain",
    "LiveStream",
    "Names",
    "Planned",
    "ScriptNames",
    "Select",
    "Show",
    "ShowCreate",
    "StartPipeline",
    "Statement",
    "StopPipeline",
    "TakeSavepoint",
    "define_sink",
    "define_stream",
    "explain",
    "explain_json",
    "parse_script",
    "plan_pipeline",
    "statement_ends",
]
