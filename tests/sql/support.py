"""Shared by the tests of sql: the declared names, and golden files."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

from headrace.model.program import Meaning
from headrace.sql import (
    CreatePipeline,
    CreateSink,
    CreateStream,
    Planned,
    Select,
    define_sink,
    define_stream,
    parse_script,
    plan_on_shared_host,
    plan_pipeline,
)
from headrace.state.catalog import Catalog

HERE = Path(__file__).parent
REWRITE = os.environ.get("HEADRACE_REWRITE") == "1"
MEANING = Meaning()
SEPARATOR = "----\n"


@functools.cache
def names() -> Catalog:
    """The streams and sinks of streams.sql."""
    found = Catalog()
    for statement in parse_script((HERE / "streams.sql").read_text("utf-8")):
        if isinstance(statement, CreateStream):
            found = found.with_stream(define_stream(statement, MEANING))
        else:
            assert isinstance(statement, CreateSink)
            found = found.with_sink(define_sink(statement))
    return found


def plan(text: str, meaning: Meaning = MEANING) -> Planned:
    """The plan of the one query or CREATE PIPELINE in `text`."""
    (statement,) = parse_script(text)
    assert isinstance(statement, Select | CreatePipeline)
    return _planner(text)(statement, names(), meaning)


def _planner(text: str) -> Callable[[Select | CreatePipeline, Catalog, Meaning], Planned]:
    """Most cases are about the shared host. A case with the comment `-- any host` leaves the choice to the planner."""
    return plan_pipeline if "-- any host" in text else plan_on_shared_host


def apply_script(text: str) -> None:
    """Parses, defines and plans every statement of `text` over the declared names."""
    for statement in parse_script(text):
        if isinstance(statement, CreateStream):
            define_stream(statement, MEANING)
        elif isinstance(statement, CreateSink):
            define_sink(statement)
        elif isinstance(statement, Select | CreatePipeline):
            _planner(text)(statement, names(), MEANING)


def check_golden(path: Path, given: str, actual: str) -> None:
    """Requires that the part of the file after the separator is `actual`. HEADRACE_REWRITE=1 writes it instead."""
    if REWRITE:
        path.write_text(f"{given}{SEPARATOR}{actual}\n", "utf-8")
    expected = path.read_text("utf-8").partition(SEPARATOR)[2]
    assert actual + "\n" == expected, f"{path.name} holds another result; look at it, then run with HEADRACE_REWRITE=1"


def golden_files(folder: str, suffix: str = ".sql") -> list[Path]:
    """The case files of a folder, in order."""
    return sorted((HERE / folder).glob(f"*{suffix}"))
