"""START and STOP PIPELINE, SAVEPOINT and SELECT in a draft."""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import (
    NoSink,
)
from headrace.hub.draft_state import DraftState, without_state
from headrace.hub.lookup import (
    at,
    require,
    require_pipeline,
)
from headrace.hub.observed import query_trouble
from headrace.hub.results import Result
from headrace.sql import (
    Select,
    StartPipeline,
    StopPipeline,
    TakeSavepoint,
)
from headrace.state.state_dir import require_savepoint_name


def start_pipeline(draft: DraftState, statement: StartPipeline) -> Result:
    record = require_pipeline(draft.catalog, statement.name, statement.span)
    name = record.definition.name
    found = {stream: query_trouble(draft.streams, stream) for stream in record.definition.streams}
    trouble = {stream: state for stream, state in found.items() if state}
    note = "".join(f"; stream {s} was {state}, its query is started again" for s, state in trouble.items())
    running = record.desired == "running" and not record.detached
    if running and not trouble:
        return Result(f"pipeline {name} is running")
    for stream, state in found.items():
        draft.touch(stream, wait=True, revive=bool(state))
    if running:
        return Result(f"pipeline {name} goes on{note}")
    draft.start(record)
    return Result(f"started pipeline {name}{note}")


def stop_pipeline(draft: DraftState, statement: StopPipeline) -> Result:
    record = require_pipeline(draft.catalog, statement.name, statement.span)
    if record.desired != "running":
        return Result(f"pipeline {record.definition.name} is not running")
    now, running = statement.mode == "now", record.attached
    stopping = record.to("stopping", f"STOP PIPELINE {statement.mode.upper()}")
    if now:  # its state is dropped
        stopping = replace(stopping, definition=without_state(stopping.definition))
    draft.catalog = draft.catalog.with_pipeline(stopping)
    draft.catalog = draft.catalog.with_end(running, flush=statement.close_windows, drop=now)
    for stream in running.streams:
        change = draft.touch(stream, wait=not now)
        part = running.on_stream(stream)
        if now:
            draft.set_change(replace(change, quick=(*change.quick, part)))
        else:
            draft.set_change(replace(change, graceful=(*change.graceful, part)))
    return Result(f"stopped pipeline {record.definition.name}")


def take_savepoint(draft: DraftState, statement: TakeSavepoint) -> Result:
    with at(statement.span):
        require_savepoint_name(statement.name)
    if statement.stream is not None:
        require(draft.catalog, "stream", statement.stream, statement.span)
    draft.savepoints.append((statement.name, statement.stream))
    return Result(f"took savepoint {statement.name}")


def select(draft: DraftState, statement: Select) -> Result:
    if draft.selects is None:
        raise NoSink(
            "a bare SELECT has nowhere to put its rows",
            advice="Use CREATE PIPELINE name INTO sink AS SELECT ..., or EXPLAIN SELECT ... to see its plan. On a "
            "running hub, headrace sql and hub.sql show the rows of a SELECT.",
            span=statement.span,
        )
    draft.selects.append(statement)
    return Result("selected")
