"""Says which expression of a pipeline failed, on which row, and where in the input that row is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from headrace.base.python_values import python_value, time_text
from headrace.errors import EvaluationFailed, HeadraceError
from headrace.exec.failures import coded
from headrace.exec.generate import after_generator, made_rows
from headrace.exec.sizing import pieces_to_search
from headrace.exec.trying import first_failing, reason
from headrace.model.program import FallibleExpression, Meaning, PipelineProgram, Ring0Program
from headrace.model.schema import NESTED, Schema, field_at
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
    found = _first(program, program.ring0, rows, after=0)
    if found is None:
        return problem
    candidate, row = found
    said = reason(program.meaning, candidate.sql, row) or str(failure.params.get("said", ""))
    return _failure(said, failure.advice, candidate, schema=schema, row=row, place_of=place_of)


def _first(
    program: PipelineProgram, rest: Ring0Program, rows: pa.Table, after: int
) -> tuple[FallibleExpression, pa.Table] | None:
    """The first expression that fails on a row, and that row. `rows` were made by `after` generators, and `rest` is
    the part of the program that reads them. It runs in the order of the pipeline, so the memory is bounded, too."""
    candidates = [c for c in program.ring0.fallible if c.after == after]
    for piece in _pieces(program.meaning, rest, rows):
        for candidate in candidates:
            row = first_failing(program.meaning, candidate.sql, piece)
            if row is not None:
                return candidate, piece.slice(row, 1)
        for made in _made(program, rest, piece, after):
            found = _first(program, after_generator(rest), made, after + 1)
            if found is not None:
                return found
    return None


def _pieces(meaning: Meaning, rest: Ring0Program, rows: pa.Table) -> list[pa.Table]:
    """`rows` in pieces that fit into memory; none if there are no such pieces."""
    try:
        return pieces_to_search(rest, meaning, rows)
    except (duckdb.Error, HeadraceError):  # another row is too large
        return []


def _made(program: PipelineProgram, rest: Ring0Program, rows: pa.Table, after: int) -> Iterator[pa.Table]:
    """The rows that the next generator makes, with the places of their records. None if nothing reads them that may
    fail, or if they cannot be made."""
    if not rest.generators or all(c.after <= after for c in program.ring0.fallible):
        return
    first = rest.generators[0]
    if PLACE in rows.column_names:
        first = replace(first, kept=(*first.kept, PLACE))
    try:
        yield from made_rows(replace(rest, generators=(first,)), program.meaning, rows)
    except (duckdb.Error, HeadraceError):
        return


def _failure(
    said: str,
    advice: str,
    candidate: FallibleExpression,
    *,
    schema: Schema,
    row: pa.Table,
    place_of: PlaceOf | None,
) -> EvaluationFailed:
    """The failure with what is known about `row`, a table of one row."""
    place = place_of(row.column(PLACE)[0].as_py()) if place_of is not None and PLACE in row.column_names else None
    made = iter(candidate.made)
    names = {i: next(made) if len(schema) <= i < NESTED else field_at(schema, i).name for i in candidate.columns}
    read = {name: f"c{i}" for i, name in names.items() if f"c{i}" in row.column_names}
    values = ", ".join(f"{name} = {_short(python_value(row.column(column)[0]))}" for name, column in read.items())
    return EvaluationFailed(
        f"the expression {candidate.text or 'of the query'} failed: {said}"
        + (f"\n  at {place}" if place is not None else "")
        + (f"\n  where {values}" if values else ""),
        advice=advice,
        said=said,
        expression=candidate.text,
        origin=None if place is None else place.origin,
        offset=None if place is None else place.offset,
        line=None if place is None else place.line,
    )


def _short(value: Any) -> str:
    text = "NULL" if value is None else _spelled(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _spelled(value: Any) -> str:
    """A value as in SQL where Python spells it otherwise."""
    if isinstance(value, datetime):
        return f"'{time_text(value)}'"
    if isinstance(value, date):
        return f"'{value}'"
    return str(value) if isinstance(value, Decimal) else repr(value)
