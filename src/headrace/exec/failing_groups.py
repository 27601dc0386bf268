"""Says which expression above an aggregate failed, and for which group."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

from headrace.base.python_values import python_value
from headrace.errors import EvaluationFailed
from headrace.exec.failures import coded
from headrace.exec.trying import first_failing
from headrace.model.program import Meaning, Ring1Program

_SHOWN = 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def explained(problem: duckdb.Error, program: Ring1Program, meaning: Meaning, groups: pa.Table) -> Exception:
    """`problem` with the output column or HAVING that failed, and the first group on which it did. Returns `problem`
    itself if it is not about a value, or if the group cannot be found again. `groups` are what the outputs read."""
    failure = coded(problem)
    if not isinstance(failure, EvaluationFailed):
        return problem
    kept = None if program.ranks else program.having  # ranked groups have passed HAVING
    candidates = [] if kept is None else [("HAVING", f"({kept})")]
    for output in program.outputs:
        value = f"CAST(({output.sql}) AS {output.type.duckdb})"
        guarded = value if kept is None else f"CASE WHEN {kept} THEN {value} END"
        candidates.append((f"the expression of the column '{output.name}'", guarded))
    for what, sql in candidates:
        row = first_failing(meaning, sql, groups)
        if row is not None:
            said = failure.params.get("said", "")
            return EvaluationFailed(
                f"{what} failed: {said}{_place(program, groups.slice(row, 1))}",
                advice=failure.advice,
                said=said,
                expression=what,
            )
    return problem


def _place(program: Ring1Program, group: pa.Table) -> str:
    """The window and the keys of a table with one group."""
    values = [f"{_name(program, f'k{i}')} = {_short(group.column(f'k{i}')[0])}" for i in range(len(program.keys))]
    found = ""
    if program.window is not None:
        start, end = (_shown(group.column(name)[0].as_py()) for name in ("window_start", "window_end"))
        found += f"\n  in the window from {start} to {end} (UTC)"
    return found + (f"\n  where {', '.join(values)}" if values else "")


def _name(program: Ring1Program, key: str) -> str:
    """The output column that shows a key, else its number."""
    shown = (o.name for o in program.outputs if o.sql.strip("()") == key)
    return next(shown, f"key {int(key[1:]) + 1}")


def _shown(micros: int) -> str:
    try:
        return str((_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None))
    except OverflowError:  # a year after 9999
        return f"{micros} microseconds since 1970"


def _short(value: Any) -> str:
    found = python_value(value)
    text = "NULL" if found is None else repr(found)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
