"""Says which expression of a pipeline failed, on which row, and where in the input that row is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from headrace.base.python_values import python_value
from headrace.errors import EvaluationFailed, HeadraceError
from headrace.exec.failures import coded
from headrace.exec.sizing import pieces_to_search
from headrace.exec.trying import first_failing
from headrace.model.program import FallibleExpression, PipelineProgram
from headrace.model.schema import Schema, field_at
from headrace.ring0.batch import PLACE

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where a record is: its origin, its offset there, and its line if that is known."""

    origin: str
    offset: int
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.origin}, " + (f"line {self.line}, " if self.line is not None else "") + f"offset {self.offset}"


PlaceOf = Callable[[int], RecordPlace]


def explained(
    problem: Exception, program: PipelineProgram, schema: Schema, rows: pa.Table, place_of: PlaceOf | None
) -> Exception:
    """`problem` with the expression, the values it read, and the origin of the first row on which it fails. Returns
    `problem` itself if it is not about a value, or if the row cannot be found again."""
    failure = coded(problem)
    if not isinstance(failure, EvaluationFailed) or "expression" in failure.params:
        return problem
    try:
        pieces = pieces_to_search(program.ring0, program.meaning, rows)
    except (HeadraceError, duckdb.Error):  # another row is too large
        return problem
    for candidate in program.ring0.fallible:
        for piece in pieces:
            row = first_failing(program.meaning, candidate.sql, piece)
            if row is not None:
                return _failure(
                    failure=failure, candidate=candidate, schema=schema, row=piece.slice(row, 1), place_of=place_of
                )
    return problem


def _failure(
    failure: EvaluationFailed, candidate: FallibleExpression, schema: Schema, row: pa.Table, place_of: PlaceOf | None
) -> EvaluationFailed:
    """The failure with what is known about `row`, a table of one row."""
    said = failure.params.get("said", "")
    place = place_of(row.column(PLACE)[0].as_py()) if place_of is not None and PLACE in row.column_names else None
    read = {field_at(schema, i).name: f"c{i}" for i in candidate.columns if f"c{i}" in row.column_names}
    values = ", ".join(f"{name} = {_short(python_value(row.column(column)[0]))}" for name, column in read.items())
    return EvaluationFailed(
        f"the expression {candidate.text or 'of the query'} failed: {said}"
        + (f"\n  at {place}" if place is not None else "")
        + (f"\n  where {values}" if values else ""),
        advice=failure.advice,
        said=said,
        expression=candidate.text,
        origin=None if place is None else place.origin,
        offset=None if place is None else place.offset,
        line=None if place is None else place.line,
    )


def _short(value: Any) -> str:
    text = "NULL" if value is None else repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
