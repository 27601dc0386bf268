"""Evaluates filters that several passes of a task have in common once, as columns of the batch.

A family evaluates equal filters of its members once by itself. This module is for filters that are also in another
family, or in a pipeline that runs alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from headrace.base.identity import kept_by_identity
from headrace.exec import duck
from headrace.model.program import Meaning, Ring0Program

KEPT = 4096


def in_common(passes: Iterable[Iterable[str | None]]) -> list[str]:
    """The filters that occur in more than one pass. A pass is given as the filters of its pipelines."""
    counts: Counter[str] = Counter()
    for filters in passes:
        counts.update({text for text in filters if text is not None})
    return [text for text, count in counts.items() if count > 1]


def evaluate(filters: list[str], meaning: Meaning, rows: pa.Table) -> tuple[pa.Table, dict[str, str]]:
    """`rows` with one column per filter, and the column name of each filter. Raises if a filter fails on some row; then
    every pass has to evaluate its own, which shows whose filter it is."""
    names = {text: f"_s{i}" for i, text in enumerate(filters)}
    columns = ", ".join(f"CAST(({text}) AS BOOLEAN) AS {name}" for text, name in names.items())
    found = duck.run(meaning, f"SELECT {columns} FROM rows", {"rows": rows})
    for name in names.values():
        rows = rows.append_column(name, found.column(name))
    return rows, names


def using(program: Ring0Program, known: Mapping[str, str]) -> Ring0Program:
    """`program` with its filter replaced by the column that holds the result, if there is one."""
    if program.filter is None or program.filter not in known:
        return program
    return _filtered_by(program, known[program.filter])


@kept_by_identity(KEPT)
def _filtered_by(program: Ring0Program, column: str) -> Ring0Program:
    """Always the same object, because passes are kept by the identity of their programs."""
    return replace(program, filter=column)
