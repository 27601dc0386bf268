"""Maps enter and leave DuckDB as lists of entries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.exec import duck
from headrace.exec.map_entries import made_map, made_of
from headrace.model.program import Expression, Meaning
from headrace.model.schema import INT, STRING, Map

KIND = Map(STRING, INT)
ENTRIES = "CASE WHEN k <> '' THEN [struct_pack(key := k, value := v)] END"


@pytest.mark.parametrize(
    ("sql", "entries"),
    [
        (made_map("[f(')', a)]"), "[f(')', a)]"),
        (made_map('x."o)""("'), 'x."o)""("'),
        (f"{made_map('a')} || {made_map('b')}", None),
        (f"f({made_map('a')})", None),
        ("hr_mapped(a)", None),
        ("hr_map(a", None),
    ],
)
def test_only_a_call_that_is_the_whole_text_is_taken_apart(sql: str, entries: str | None) -> None:
    assert made_of(sql) == entries


@pytest.mark.parametrize("sql", [made_map(ENTRIES), f"coalesce({made_map(ENTRIES)}, NULL)"], ids=["entries", "map"])
def test_a_made_map_leaves_duckdb_as_a_map(sql: str) -> None:
    rows = pa.table({"k": pa.array(["a", "", "b"]), "v": pa.array([1, 2, None], pa.int32())})
    text = f"SELECT {duck.select_list([Expression('m', KIND, sql)])} FROM rows"
    schema: Any = pa.schema([pa.field("m", KIND.arrow)])
    found = duck.conform(duck.run(Meaning(), text, {"rows": rows}), schema)
    assert found.schema == schema
    assert found.column("m").to_pylist() == [[("a", 1)], None, [("b", None)]]
    assert duck.conform(duck.run(Meaning(), text, {"rows": rows.slice(0, 0)}), schema).num_rows == 0
