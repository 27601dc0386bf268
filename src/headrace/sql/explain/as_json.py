"""EXPLAIN as JSON: the same facts as `explain`, for programs. The keys are stable."""

from __future__ import annotations

import json
from typing import Any

from headrace.model.definitions import SinkDef
from headrace.model.program import Expression, PipelineProgram
from headrace.model.schema import Schema, View, field_at
from headrace.model.stream_options import stream_settings
from headrace.sinks import SINKS
from headrace.sources.read_description import describe_read
from headrace.sql.explain.live_stream import LiveStream, asked_by, batch_policy, computed_columns, impact_of
from headrace.sql.explain.plan_text import show_node, show_plan
from headrace.sql.explain.slow_calls import slow_calls
from headrace.sql.plan.logical import Plan
from headrace.sql.plan.physical import Physical, topological
from headrace.sql.planner import Planned


def explain_json(planned: Planned, live: LiveStream | None) -> str:
    """Describes how the query runs, as JSON text with sorted keys."""
    document = {
        "pipeline": planned.name,
        "host": {
            "name": planned.choice.host,
            "reason": planned.choice.reason,
            "expression": planned.choice.expression or None,
        },
        "views": [view.name for view in planned.views],
        "spark": _spark(planned),
        "dedicated": _dedicated(planned),
        "logical": _logical(planned.logical),
        "physical": _physical(planned.physical),
        "ring0": _ring0(planned.program),
        "ring1": _ring1(planned),
        "slow": slow_calls(planned.logical),
        "watermark": _watermark(planned),
        "sinks": [_sink(s) for s in planned.sinks],
        "rules": [_rule(name, after) for name, after in planned.trace],
        "output": [{"name": f.name, "type": f.type.ddl} for f in planned.program.output],
        "stream": _foot(planned, live),
    }
    return json.dumps(document, indent=2, sort_keys=True)


def _sink(sink: SinkDef) -> dict[str, str]:
    return {"name": sink.name, "type": sink.kind, "guarantee": SINKS[sink.kind].guarantee_of(sink)}


def _logical(plan: Plan) -> dict[str, Any]:
    return {"node": type(plan).__name__, "text": show_node(plan), "inputs": [_logical(p) for p in plan.inputs]}


def _physical(plan: Physical) -> list[dict[str, Any]]:
    names: dict[int, str] = {}
    found: list[dict[str, Any]] = []
    for node in topological(plan):
        name = names[id(node)] = f"r{len(names)}"
        inputs = [names[id(child)] for child in node.inputs]
        found.append({"name": name, "operator": type(node).__name__, "inputs": inputs, **dict(node.details)})
    return found


def _expression(expression: Expression) -> dict[str, str]:
    return {"name": expression.name, "type": expression.type.ddl, "sql": expression.sql}


def _window(program: PipelineProgram) -> dict[str, Any] | None:
    window = program.ring0.window
    if window is None:
        return None
    return {"kind": window.kind, "size_us": window.size, "slide_us": window.slide, "offset_us": window.offset}


def _ring0(program: PipelineProgram) -> dict[str, Any]:
    ring0 = program.ring0
    return {
        "filter": ring0.filter,
        "window": _window(program),
        "generators": [
            {"filter": g.filter, "outer": g.outer, "columns": [_expression(c) for c in g.columns]}
            for g in ring0.generators
        ],
        "made_filter": ring0.made_filter,
        "outputs": [_expression(o) for o in ring0.outputs],
        "keys": [_expression(k) for k in ring0.keys],
        "partials": [{"name": p.name, "type": p.type.ddl, "sql": p.sql, "merge": p.merge} for p in ring0.partials],
    }


def _ring1(planned: Planned) -> dict[str, Any] | None:
    ring1 = planned.program.ring1
    if ring1 is None:
        return None
    return {
        "emit": ring1.emit,
        "emit_implied": planned.emit is None,
        "having": ring1.having,
        "ranks": [_expression(r) for r in ring1.ranks],
        "keeps": ring1.qualify,
        "outputs": [_expression(o) for o in ring1.outputs],
    }


def _spark(planned: Planned) -> dict[str, Any] | None:
    query = planned.program.spark
    if query is None:
        return None
    return {
        "sql": query.sql,
        "relation": query.relation,
        "staged": [{"name": f.name, "type": f.type.ddl} for f in query.staged],
        "tables": list(dict.fromkeys(name for _, _, name, _ in query.tables)),
        "refresh_us": query.refresh_us,
        "checked": planned.spark is not None,
        "plan": None if planned.spark is None else planned.spark.plan,
    }


def _dedicated(planned: Planned) -> dict[str, Any] | None:
    query = planned.program.dedicated
    if query is None:
        return None
    return {
        "sql": query.sql,
        "mode": query.mode,
        "distinct": query.distinct,
        "backpressure": query.strategy,
        "inputs": [
            {
                "stream": given.stream,
                "columns": [{"name": f.name, "type": f.type.ddl} for f in given.staged],
                "filter": given.ring0.filter,
                "event_time": given.event_time,
                "delay_us": given.delay_us,
            }
            for given in query.inputs
        ],
        "checked": planned.spark is not None,
        "plan": None if planned.spark is None else planned.spark.plan,
    }


def _watermark(planned: Planned) -> dict[str, Any] | None:
    stream = planned.stream
    if stream.event_time is None:
        return None
    settings = stream_settings(stream)
    return {
        "column": stream.schema[stream.event_time].name,
        "delay_us": stream.delay_us,
        "max_future_us": settings.max_future,
        "idle_advance_us": settings.idle_advance,
    }


def _rule(name: str, after: Plan | Physical | None) -> dict[str, Any]:
    if after is None:
        return {"rule": name, "change": None}
    return {"rule": name, "change": show_plan(after) if isinstance(after, Plan) else _physical(after)}


def _view(view: View, schema: Schema) -> dict[str, Any]:
    return {"kind": view.kind, "columns": {str(i): field_at(schema, i).name for i in view.indexes(len(schema))}}


def _foot(planned: Planned, live: LiveStream | None) -> dict[str, Any]:
    schema, view = planned.stream.schema, planned.program.view
    access = describe_read(planned.stream)
    foot: dict[str, Any] = {
        "name": planned.stream.name,
        "declared": len(schema),
        "source": access.source,
        "format": access.format,
        "read": access.sharing,
        "delivery": access.guarantee or None,
        "in_order": access.in_order or None,
        "indexer": access.indexer,
        "skips_unwanted_fields": access.skips,
        "dead_letters": None if planned.stream.dead_letters is None else _sink(planned.stream.dead_letters),
        "view": _view(view, schema),
    }
    if computed := computed_columns(planned.stream, view):
        foot["computed"] = computed
    if lines := batch_policy(planned.stream, live):
        foot["batch_policy"] = lines
    if live is not None:
        foot["applied"] = {
            "version": live.version,
            "kind": live.applied.kind,
            "asked_by": {str(i): list(names) for i, names in asked_by(live, planned.stream).items()},
        }
        foot["subscribers"] = {name: _view(p.view, schema) for name, p in live.pipelines.items()}
        foot |= live.facts
        change = impact_of(planned, live)
        sharing = {"filter": change.filter or None, "shares_windowing_with": list(change.shares_with)}
        if planned.name in live.pipelines:
            foot["runs"] = sharing
        else:
            foot["adding"] = {"decode": list(change.decode), **sharing}
    return foot
