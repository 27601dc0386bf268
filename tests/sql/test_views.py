"""The view of a plan: the columns that it needs, by index, as ALL, SOME or NONE."""

from __future__ import annotations

import pytest

from headrace.model.schema import field_at
from tests.sql.support import names, plan


def _columns(query: str) -> tuple[str, list[str]]:
    planned = plan(query)
    view = planned.program.view
    return view.kind, [] if view.columns is None else [
        field_at(planned.stream.schema, i).name for i in sorted(view.columns)
    ]


@pytest.mark.parametrize(
    ("query", "kind", "columns"),
    [
        ("SELECT * FROM s", "ALL", []),
        ("SELECT x.* FROM s x", "ALL", []),
        ("SELECT count(*) AS c FROM s", "NONE", []),
        ("SELECT 1 AS one FROM s", "NONE", []),
        ("SELECT count(*) AS c FROM s GROUP BY window(ts, '1 minute')", "SOME", ["ts"]),
        ("SELECT id AS renamed FROM s", "SOME", ["id"]),
        ("SELECT id FROM s WHERE temp > 1 AND k = 'a'", "SOME", ["id", "temp", "k"]),
        ("SELECT k, count(*) AS c FROM s GROUP BY k HAVING max(n) > 1", "SOME", ["k", "n"]),
        ("SELECT pos.lat FROM s", "SOME", ["pos.lat"]),
        ("SELECT id, count(pos.lon) AS c FROM s WHERE pos.lat > 1 GROUP BY id", "SOME", ["id", "pos.lat", "pos.lon"]),
        ("SELECT pos.lat, pos FROM s", "SOME", ["pos"]),
        ("SELECT q.p.lat FROM (SELECT pos AS p FROM s) q", "SOME", ["pos.lat"]),
        ("SELECT pos.* FROM s", "SOME", ["pos.lat", "pos.lon"]),
        ("SELECT pos IS NULL AS n, pos.lat FROM s", "SOME", ["pos"]),
        ("SELECT a FROM (SELECT id AS a, temp AS b, k AS c FROM s) q", "SOME", ["id"]),
        ("SELECT a FROM (SELECT id AS a, temp AS b FROM s) q WHERE b > 1", "SOME", ["id", "temp"]),
        ("SELECT sum(n) FILTER (WHERE ok) AS t FROM s", "SOME", ["ok", "n"]),
        ("SELECT last(k) AS l FROM s", "SOME", ["k", "ts"]),
        ("SELECT id FROM s WHERE TRUE OR temp > 1", "SOME", ["id"]),
        ("SELECT CASE WHEN 1 = 2 THEN temp ELSE hum END AS c FROM s", "SOME", ["hum"]),
    ],
)
def test_the_view_has_exactly_the_columns_that_the_query_reads(query: str, kind: str, columns: list[str]) -> None:
    assert _columns(query) == (kind, columns)


def test_the_schema_stays_whole_and_positions_are_those_of_the_full_schema() -> None:
    planned = plan("SELECT ts FROM s")
    (output,) = planned.program.ring0.outputs
    stream = names().stream("S")
    assert stream is not None
    assert output.sql == f"c{stream.schema.index('ts')}"
    assert planned.stream.schema == stream.schema


def test_the_program_knows_which_columns_each_condition_of_the_filter_reads() -> None:
    ring0 = plan("SELECT id FROM s WHERE k = 'a' AND (temp > 1 OR hum > 2) AND id IS NOT NULL").program.ring0
    names = plan("SELECT * FROM s").stream.schema.names
    read = [{names[c] for c in condition.columns} for condition in ring0.conditions]
    assert read == [{"k"}, {"temp", "hum"}, {"id"}]
    assert all(condition.sql in str(ring0.filter) for condition in ring0.conditions)
