"""`headrace check` and `headrace explain`: plan a script from its text alone. No Spark, no Java, no changes.

Unlike `hub.check`, `check_script` reports all errors of a script at once and works without a state directory. With a
state directory, the script is planned as an addition to the objects declared there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from json import dumps as json_text
from pathlib import Path

from headrace.base.unknown import unknown
from headrace.errors import HeadraceError, UnknownPipeline, UnknownSink, UnknownStream, UserError
from headrace.hub.chains import unchecked_input
from headrace.hub.draft import Draft
from headrace.hub.time_zone import session_meaning
from headrace.model.definitions import StreamDef
from headrace.sql import (
    CreateDerivedStream,
    CreatePipeline,
    CreateSink,
    CreateStream,
    CreateView,
    Select,
    Statement,
    explain,
    explain_json,
    parse_script,
    plan_pipeline,
)
from headrace.sql.parse.script import parse_each, raise_all
from headrace.sql.parse.statements import ExplainMode
from headrace.state.catalog import Catalog
from headrace.state.sealing import read_sealed
from headrace.state.state_dir import require_known_format


@dataclass(frozen=True, slots=True)
class CheckedScript:
    """A script without errors, and the warnings that its statements would print. `absent` are paths that this machine
    does not have, and `unchecked` the pipelines whose queries only Spark can check."""

    statements: tuple[Statement, ...]
    warnings: tuple[str, ...] = ()
    absent: tuple[HeadraceError, ...] = ()
    unchecked: tuple[str, ...] = ()

    @property
    def pipelines(self) -> tuple[CreatePipeline, ...]:
        """The CREATE PIPELINE statements of the script."""
        return tuple(s for s in self.statements if isinstance(s, CreatePipeline))

    @property
    def prints_rows(self) -> bool:
        """True if the script declares a console sink."""
        sinks = (s for s in self.statements if isinstance(s, CreateSink))
        return any(value.lower() == "console" for s in sinks for k, value in s.options.items() if k.lower() == "type")


def check_script(
    text: str, state_dir: Path | None = None, time_zone: str | None = None, *, elsewhere: bool = False
) -> CheckedScript:
    """Plan every statement of `text`. Raises the error if there is one, and ScriptErrors if there are several. With
    `elsewhere` the script will run on another machine, and paths that are missing here are not errors."""
    draft = _draft(state_dir, time_zone)
    draft.elsewhere = elsewhere
    parsed = parse_each(text)
    statements, errors, undeclared = parsed.statements, list(parsed.errors), set(parsed.undeclared)
    warnings: list[str] = []
    for statement in statements:
        try:
            warnings += draft.apply(statement).warnings
        except UserError as problem:
            if not _follows(problem, undeclared):
                errors.append(problem)
            if isinstance(statement, CreatePipeline):
                undeclared |= {outlet.name.lower() for outlet in statement.streams}
            if isinstance(statement, CreateStream | CreateDerivedStream | CreateSink | CreatePipeline | CreateView):
                undeclared.add(statement.name.lower())
    raise_all(sorted(errors, key=lambda e: 0 if e.span is None else e.span.start))
    declared = (draft.catalog.pipeline(s.name) for s in statements if isinstance(s, CreatePipeline))
    unchecked = tuple(r.definition.name for r in declared if r is not None and not len(r.definition.program.output))
    return CheckedScript(statements, tuple(warnings), tuple(draft.absent), unchecked)


def _follows(problem: HeadraceError, undeclared: set[str]) -> bool:
    """True if the error only reports a missing name, and the statement that declares this name has an error itself. A
    query for Spark may name anything, so its error about streams has no name."""
    if not isinstance(problem, UnknownStream | UnknownSink | UnknownPipeline):
        return False
    if "name" in problem.params or problem.span is None:
        return str(problem.params.get("name", "")).lower() in undeclared
    query = problem.span.text[problem.span.start : problem.span.end].lower()
    return not undeclared.isdisjoint(re.findall(r"\w+", query))


def explain_script(text: str, *, pipeline: str | None = None, rules: bool = False, json: bool = False) -> str:
    """The plans of all pipelines and queries of `text`, or only the plan of `pipeline`."""
    draft = _draft(None)
    draft.elsewhere = True
    shown: list[str] = []
    names: list[str] = []
    for statement in parse_script(text):
        name = statement.name if isinstance(statement, CreatePipeline) else None
        asked = isinstance(statement, CreatePipeline | Select) and (pipeline is None or _same(name, pipeline))
        below = unchecked_input(statement, draft.catalog) if isinstance(statement, CreatePipeline | Select) else None
        if asked and below is not None:
            shown.append(json_text({"pipeline": name, "unchecked": below.name}) if json else _unchecked(name, below))
        elif isinstance(statement, CreatePipeline | Select) and asked:
            planned = plan_pipeline(statement, draft.catalog, draft.meaning)
            mode: ExplainMode = "verbose" if rules else "plain"
            shown.append(explain_json(planned, None) if json else explain(planned, None, mode))
        if name is not None:
            names.append(name)
        if not isinstance(statement, Select):
            draft.apply(statement)
    if pipeline is not None and not shown:
        raise unknown(UnknownPipeline, what="pipeline", name=pipeline, known=names, of="the script")
    return ("[" + ",\n".join(shown) + "]") if json else "\n\n".join(shown)


def _unchecked(name: str | None, stream: StreamDef) -> str:
    title = "query" if name is None else f"pipeline {name}"
    why = f"only Spark can check pipeline {stream.fed_by}, whose output is stream {stream.name}"
    return f"{title}\nnot planned: {why}; a running hub explains it"


def _same(name: str | None, other: str) -> bool:
    return name is not None and name.lower() == other.lower()


def _draft(state_dir: Path | None, time_zone: str | None = None) -> Draft:
    if state_dir is None:
        return Draft(Catalog(), session_meaning(Catalog(), time_zone), buckets=1)
    require_known_format(state_dir)  # first: the catalog of a newer format would look damaged
    catalog, vault = read_sealed(state_dir)
    return Draft(catalog, session_meaning(catalog, time_zone), buckets=1, vault=vault)
