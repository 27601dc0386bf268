"""Filters that several passes of a task have in common are evaluated once, as columns of the batch.

A family evaluates equal filters of its members once by itself; this is for filters that also stand elsewhere: in
another family, or in a pipeline that runs alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from headrace.exec import duck
from headrace.model.program import Meaning, Ring0Program


def in_common(passes: Iterable[Iterable[str | None]]) -> list[str]:
    """The filters that more than one pass has, each pass given by the filters of its pipelines."""
    counts: Counter[str] = Counter()
    for filters in passes:
        counts.update({text for text in filters if text is not None})
    return [text for text, count in counts.items() if count > 1]


def evaluate(filters: list[str], meaning: Meaning, rows: pa.Table) -> tuple[pa.Table, dict[str, str]]:
    """`rows` with a column per filter, and the name of each. Fails if a filter fails on some row: whose it is shows
    when every pass evaluates its own."""
    names = {text: f"_s{i}" for i, text in enumerate(filters)}
    columns = ", ".join(f"CAST(({text}) AS BOOLEAN) AS {name}" for text, name in names.items())
    found = duck.run(meaning, f"SELECT {columns} FROM rows", {"rows": rows})
    for name in names.values():
        rows = rows.append_column(name, found.column(name))
    return rows, names


def using(program: Ring0Program, known: Mapping[str, str]) -> Ring0Program:
    """`program` with the column that holds its filter's answer, if there is one."""
    if program.filter is None or program.filter not in known:
        return program
    return replace(program, filter=known[program.filter])
