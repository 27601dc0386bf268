"""Pipelines that only select columns: the same rows as when DuckDB runs the whole statement."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.exec import duck
from headrace.exec.aggregates import project_rows
from headrace.model.program import Meaning, Ring0Program
from headrace.ring0.copying import project
from tests.ring0.tasks import WORD, N, X, stateless

ROWS = pa.table(
    {
        "c0": pa.array([None if i % 7 == 0 else f"w{i}" for i in range(1000)]),
        "c1": pa.array([None if i % 5 == 0 else i % 50 for i in range(1000)], pa.int32()),
        "c2": pa.array([i / 2 for i in range(1000)]),
        "_s0": pa.array([None if i % 3 == 0 else i % 2 == 0 for i in range(1000)]),
    }
)


def program(where: str | None, sql: str | None = None) -> Ring0Program:
    return stateless(1, WORD, N, X, where=where, sql=sql).program.ring0


@pytest.mark.parametrize(
    "where",
    [
        None,
        "c1 > 10",
        "c1 > 1000",
        "c2 >= 0",
        "_s0",
        "c0 IS NULL OR c1 IS NULL",
        "c2 < 400 AND (c0 LIKE 'w1%')",
        "c1 <> 0 AND CASE WHEN c1 = 0 THEN error('zero') ELSE true END",
    ],
)
@pytest.mark.parametrize("rows", [ROWS, ROWS.slice(0, 0), pa.concat_tables([ROWS, ROWS.slice(3)])])
def test_the_rows_are_those_of_the_whole_statement(where: str | None, rows: pa.Table) -> None:
    asked = program(where)
    expected = project_rows(asked.outputs, asked.filter, Meaning(), rows)
    found = project(asked, Meaning(), rows)
    assert found.schema == expected.schema
    assert found.to_pylist() == expected.to_pylist()


def test_columns_are_not_copied_and_expressions_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert project(program("c1 > 48", "c1 + 1"), Meaning(), ROWS).column("computed").to_pylist() == [50] * 20
    asked: list[str] = []
    run = duck.run

    def noted(meaning: Meaning, sql: str, relations: Any) -> pa.Table:
        asked.append(sql)
        return run(meaning, sql, relations)

    monkeypatch.setattr(duck, "run", noted)
    found: Any = project(program(None), Meaning(), ROWS).column("word").chunk(0)
    given: Any = ROWS.column("c0").chunk(0)
    assert found.buffers()[2].address == given.buffers()[2].address
    assert not asked
    project(program("c1 > 10"), Meaning(), ROWS)
    assert asked == ["SELECT _row FROM rows WHERE (c1 > 10)"]
