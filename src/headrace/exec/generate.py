"""Runs the generators of a program: `explode` and similar functions turn arrays and maps into rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from headrace.exec import duck
from headrace.exec.aggregates import where
from headrace.exec.sizing import in_pieces
from headrace.model.program import Meaning, Ring0Program, RowGenerator


def made_rows(program: Ring0Program, meaning: Meaning, rows: pa.Table) -> Iterator[pa.Table]:
    """The rows that the generators make of `rows`, in order, in tables of a limited size. An input without rows gives
    one table without rows. Raises ValueTooLarge for a row that would make too many bytes."""
    return _made(program.generators, program.filter, meaning, rows)


def over_made_rows(program: Ring0Program) -> Ring0Program:
    """The part of `program` that reads the made rows."""
    return replace(program, filter=program.made_filter, generators=(), made_filter=None)


def after_generator(program: Ring0Program) -> Ring0Program:
    """The part of `program` that reads the rows of its first generator."""
    rest = program.generators[1:]
    return replace(program, filter=None, generators=rest) if rest else over_made_rows(program)


def _made(
    generators: Sequence[RowGenerator], wanted: str | None, meaning: Meaning, rows: pa.Table
) -> Iterator[pa.Table]:
    if not generators:
        yield rows
        return
    first, rest = generators[0], generators[1:]
    for piece in in_pieces(first.growth, meaning, "rows", rows):
        yield from _made(rest, None, meaning, duck.run(meaning, _sql(first, wanted), {"rows": piece}))


def _sql(generator: RowGenerator, wanted: str | None) -> str:
    columns = [*generator.kept]
    for column in generator.columns:
        elements = f"CAST({column.sql} AS {column.type.duckdb}[])"
        if generator.outer:
            elements = f"CASE WHEN len({elements}) > 0 THEN {elements} ELSE [NULL] END"
        columns.append(f"unnest({elements}) AS {column.name}")
    return f"SELECT {', '.join(columns)} FROM rows{where(wanted, generator.filter)}"
