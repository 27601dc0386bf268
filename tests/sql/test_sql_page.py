"""The statements of docs/sql.md work, in their order on the page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from headrace.hub.chains import outlet_stream
from headrace.sql import (
    CreatePipeline,
    CreateSink,
    CreateStream,
    CreateView,
    Explain,
    define_sink,
    define_stream,
    define_view,
    explain,
    parse_script,
    plan_pipeline,
)
from headrace.state.catalog import Catalog
from tests.sql.support import MEANING

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"


def test_every_statement_of_the_page_can_be_planned() -> None:
    blocks = re.findall(r"^```sql\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    names = Catalog()
    planned = 0
    for statement in parse_script("\n".join(blocks)):
        if isinstance(statement, CreateStream):
            names = names.with_stream(define_stream(statement, MEANING))
        elif isinstance(statement, CreateSink):
            names = names.with_sink(define_sink(statement))
        elif isinstance(statement, CreateView):
            view, plan = define_view(statement, names, lambda query, known=names: plan_pipeline(query, known, MEANING))  # type: ignore[misc]
            names = names.with_view(replace(view, output=plan.program.output))
        target = statement.target if isinstance(statement, Explain) else statement
        if isinstance(target, CreatePipeline):
            plan = plan_pipeline(target, names, MEANING)
            assert plan.choice.host == "shared" and explain(plan, None, "verbose")
            planned += 1
            for outlet in target.streams:
                names = names.with_stream(outlet_stream(outlet, target, plan))
    assert planned >= 5


def test_the_page_names_every_window_function() -> None:
    text = PAGE.read_text("utf-8")
    for function in ("window(", "session_window(", "TUMBLE(", "HOP(", "CUMULATE(", "SESSION("):
        assert function in text
