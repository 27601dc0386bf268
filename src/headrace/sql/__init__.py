"""SQL text to programs, without a JVM.

parse_script(text)                  -> statements
define_stream / define_sink(stmt)   -> definitions, options checked
plan_pipeline(stmt, names, meaning) -> Planned, with the PipelineProgram
"""

from __future__ import annotations

from headrace.sql.define import define_sink, define_stream
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
)

__all__ = [
    "CreatePipeline",
    "CreateSink",
    "CreateStream",
    "Describe",
    "Drop",
    "Explain",
    "Names",
    "Planned",
    "ScriptNames",
    "Select",
    "Show",
    "ShowCreate",
    "StartPipeline",
    "Statement",
    "StopPipeline",
    "define_sink",
    "define_stream",
    "parse_script",
    "plan_pipeline",
]
