"""CREATE VIEW in a draft."""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import (
    InUse,
    SqlError,
)
from headrace.hub.chains import (
    unchecked_input,
)
from headrace.hub.draft_state import DraftState
from headrace.hub.redeclaring import (
    as_declared,
    exists,
    kept,
    replaced_view,
)
from headrace.hub.results import Result
from headrace.model.definitions import ViewDef
from headrace.sql import (
    CreateView,
    define_view,
    parse_script,
    plan_pipeline,
)
from headrace.state.catalog import Catalog


def create_view(draft: DraftState, statement: CreateView) -> Result:
    draft.refuse_taken("stream", statement.name, statement.span)
    old = draft.catalog.view(statement.name)
    if old is not None and statement.if_not_exists:
        return kept("view", old.name, (old.query, old.columns) == (statement.query_sql, statement.columns))
    new = _planned_view(draft, statement, draft.catalog)
    if old is None:
        draft.catalog = draft.catalog.with_view(new)
        return Result(f"created view {new.name}")
    if replace(old, sql="", name=new.name) == replace(new, sql=""):
        return as_declared("view", old.name)
    if not statement.or_replace:
        raise exists("view", old.name, statement.span)
    draft.catalog = _with_replaced(draft, new, draft.catalog, statement)
    users = [p.definition for p in draft.catalog.pipelines.values() if p.desired == "running"]
    return replaced_view(new.name, [p.name for p in users if old.name in [v.name for v in p.views]])


def _planned_view(draft: DraftState, statement: CreateView, catalog: Catalog) -> ViewDef:
    if draft.spark is None and unchecked_input(statement.body, catalog) is not None:
        return define_view(statement, catalog, lambda _: None)[0]
    view, planned = define_view(
        statement, catalog, lambda query: plan_pipeline(query, catalog, draft.meaning, draft.spark)
    )
    return replace(view, output=planned.program.output)


def _with_replaced(draft: DraftState, view: ViewDef, catalog: Catalog, statement: CreateView) -> Catalog:
    """The catalog with a replaced view. The views that read it are planned again. Raises InUse if one cannot be."""
    catalog = catalog.with_view(view)
    for name in catalog.views_over(view.name):
        over = catalog.views[name.lower()]
        (parsed,) = parse_script(over.sql)
        assert isinstance(parsed, CreateView)
        try:
            again = _planned_view(draft, parsed, catalog)
        except SqlError as problem:
            raise InUse(
                f"view {name} reads {view.name} and cannot be planned with its new definition: {problem.message}",
                advice=f"Drop or replace view {name} first.",
                span=statement.span,
                name=view.name,
                users=[name],
            ) from problem
        catalog = _with_replaced(draft, again, catalog, statement)
    return catalog
