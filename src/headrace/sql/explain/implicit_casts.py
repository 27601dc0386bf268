"""Finds texts that a query uses as something else, so that Spark casts them: CREATE PIPELINE and `headrace check` warn
of them. Such a cast fails on the first text that does not fit, and then the pipeline fails."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.model.schema import BINARY, STRING
from headrace.sql.explain.plan_text import show_expr
from headrace.sql.plan.expr import Cast, Expr, Literal, walk
from headrace.sql.plan.logical import Plan
from headrace.sql.planner import Planned


def implicit_cast_warnings(planned: Planned, script: str) -> tuple[str, ...]:
    """A warning for each text in a pipeline's query that is cast although nobody wrote CAST, each once. `script` is the
    text that the query is in. None for a query that Spark runs: its groups are planned from another text."""
    if planned.program.host != "shared":
        return ()
    casts = [e for e in _expressions(planned.bound) if isinstance(e, Cast) and _is_implicit(e)]
    found = dict.fromkeys((_shown(cast, planned, script), str(cast.type)) for cast in casts)
    return tuple(_warning(planned.name, text, kind) for text, kind in found)


def _warning(pipeline: str | None, text: str, kind: str) -> str:
    return (
        f"pipeline {pipeline}: {text} is a STRING and is cast to {kind}: the pipeline fails at the first value that "
        f"does not fit. Write TRY_CAST({text} AS {kind}), which is NULL for such a value, or CAST({text} AS {kind}) if "
        "all values fit"
    )


def _shown(cast: Cast, planned: Planned, script: str) -> str:
    """The text that is cast, as the user wrote it. Positions of a query with views are not those of the script, and the
    fields of `x.*` have the position of the star."""
    text = script[cast.at[0] : cast.at[1]]
    return show_expr(cast.input) if planned.views or text.endswith("*") else text


def _is_implicit(cast: Cast) -> bool:
    """A cast that was added to an operand has its position; CAST(x AS y) is longer than x. Any text fits BINARY."""
    added = cast.at == cast.input.at and not isinstance(cast.input, Literal)
    return added and not cast.attempt and cast.input.type == STRING and cast.type != BINARY


def _expressions(plan: Plan) -> Iterator[Expr]:
    for expr in plan.expressions:
        yield from walk(expr)
    for child in plan.inputs:
        yield from _expressions(child)
