"""`headrace check` and `headrace explain`: a script planned from its text alone. No Spark, no Java, no effect.

Unlike `hub.check` it finds all errors of a script at once and needs no state directory; with one, the script is read as
an addition to what is declared there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.base.unknown import unknown
from headrace.errors import HeadraceError, ScriptErrors, SqlError, UnknownPipeline, UnknownSink, UnknownStream
from headrace.hub.draft import Draft
from headrace.model.program import Meaning
from headrace.sql import (
    CreatePipeline,
    CreateSink,
    CreateStream,
    Select,
    Statement,
    explain,
    explain_json,
    parse_script,
    plan_pipeline,
)
from headrace.state.catalog import Catalog
from headrace.state.sealing import read_sealed
from headrace.state.state_dir import require_known_format


@dataclass(frozen=True, slots=True)
class CheckedScript:
    """A script without errors; `warnings` are what its statements would say besides."""

    statements: tuple[Statement, ...]
    warnings: tuple[str, ...] = ()

    @property
    def pipelines(self) -> tuple[CreatePipeline, ...]:
        """The pipelines that it declares."""
        return tuple(s for s in self.statements if isinstance(s, CreatePipeline))


def check_script(text: str, state_dir: Path | None = None) -> CheckedScript:
    """Plan every statement of `text`. Raises the one error there is, or ScriptErrors with all of them."""
    draft = _draft(state_dir)
    statements = parse_script(text)
    errors: list[HeadraceError] = []
    undeclared: set[str] = set()
    warnings: list[str] = []
    for statement in statements:
        try:
            warnings += draft.apply(statement).warnings
        except SqlError as problem:
            if not _follows(problem, undeclared):
                errors.append(problem)
            if isinstance(statement, CreateStream | CreateSink | CreatePipeline):
                undeclared.add(statement.name.lower())
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ScriptErrors(f"{len(errors)} statements are wrong", errors=tuple(errors))
    return CheckedScript(statements, tuple(warnings))


def _follows(problem: HeadraceError, undeclared: set[str]) -> bool:
    """Whether an error only says that a name is missing whose own declaration was wrong."""
    return (
        isinstance(problem, UnknownStream | UnknownSink | UnknownPipeline)
        and str(problem.params.get("name", "")).lower() in undeclared
    )


def explain_script(text: str, *, pipeline: str | None = None, rules: bool = False, json: bool = False) -> str:
    """The plans of the pipelines and queries of `text`; only that of `pipeline` when it is named."""
    draft = _draft(None)
    shown: list[str] = []
    names: list[str] = []
    for statement in parse_script(text):
        name = statement.name if isinstance(statement, CreatePipeline) else None
        if isinstance(statement, CreatePipeline | Select) and (pipeline is None or _same(name, pipeline)):
            planned = plan_pipeline(statement, draft.catalog, draft.meaning)
            shown.append(explain_json(planned, None) if json else explain(planned, None, verbose=rules))
        if name is not None:
            names.append(name)
        if not isinstance(statement, Select):
            draft.apply(statement)
    if pipeline is not None and not shown:
        raise unknown(UnknownPipeline, "pipeline", pipeline, names, of="the script")
    return ("[" + ",\n".join(shown) + "]") if json else "\n\n".join(shown)


def _same(name: str | None, other: str) -> bool:
    return name is not None and name.lower() == other.lower()


def _draft(state_dir: Path | None) -> Draft:
    if state_dir is None:
        return Draft(Catalog(), Meaning(), buckets=1)
    require_known_format(state_dir)  # a newer one has a catalog that would look damaged
    catalog, vault = read_sealed(state_dir)
    return Draft(catalog, Meaning(), buckets=1, vault=vault)
