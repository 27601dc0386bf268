"""Views in queries: a query over views is planned as the same query with subqueries in their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.hub.draft import Draft
from headrace.hub.results import Result
from headrace.model.program import Meaning
from headrace.sql import CreatePipeline, Planned, Select, explain, explain_json, parse_script, plan_pipeline
from headrace.sql.parse.layout import formatted
from headrace.state import savepoints
from headrace.state.catalog import Catalog, CatalogFile
from tests.sql.support import names
from tests.sql.test_hosts import Checker

VIEWS = """
CREATE VIEW Warm AS SELECT id, temp AS t, k, ts, pos FROM s WHERE temp > 15 -- degrees
;
CREATE VIEW `odd name` (`a b`, c) COMMENT 'of a view' AS SELECT id, t FROM warm w WHERE w.t < 40;
CREATE VIEW minutes AS SELECT window.start AS since, k, count(*) AS n FROM s GROUP BY window(ts, '1 minute'), k;
CREATE VIEW both AS SELECT id, k FROM warm UNION ALL SELECT c, 'odd' FROM (SELECT `a b` AS c FROM `odd name`)
"""


def draft(script: str = VIEWS) -> Draft:
    made = Draft(names(), Meaning(), 1)
    run(made, script)
    return made


def run(made: Draft, script: str) -> list[Result]:
    return [made.apply(statement) for statement in parse_script(script)]


def plan(text: str, catalog: Catalog, spark: Checker | None = None) -> Planned:
    (statement,) = parse_script(text)
    assert isinstance(statement, Select | CreatePipeline)
    return plan_pipeline(statement, catalog, Meaning(), spark)


WARM = "(SELECT id, temp AS t, k, ts, pos FROM s WHERE temp > 15)"
ODD = f"(SELECT id AS `a b`, t AS c FROM {WARM} w WHERE w.t < 40)"


@pytest.mark.parametrize(
    ("query", "inlined"),
    [
        ("SELECT id FROM warm", "SELECT id FROM s WHERE temp > 15"),
        ("SELECT W.t, pos.lat FROM WARM AS w WHERE w.id > 3", f"SELECT w.t, pos.lat FROM {WARM} w WHERE w.id > 3"),
        ("SELECT x, y FROM `odd name` AS o(x, y)", f"SELECT `a b` AS x, c AS y FROM {ODD} o"),
        ("SELECT * FROM `Odd Name` WHERE `A B` = 1", f"SELECT * FROM {ODD} o WHERE `a b` = 1"),
        (
            "SELECT count(*) AS n, max(t) AS m FROM warm GROUP BY window(ts, '1 hour') HAVING max(t) > 20",
            f"SELECT count(*) AS n, max(t) AS m FROM {WARM} w GROUP BY window(ts, '1 hour') HAVING max(t) > 20",
        ),
        (
            "SELECT k, n FROM minutes WHERE n > 3",
            "SELECT k, n FROM (SELECT window.start AS since, k, count(*) AS n FROM s "
            "GROUP BY window(ts, '1 minute'), k) m WHERE n > 3",
        ),
        ("SELECT id FROM warm UNION ALL SELECT id FROM s", f"SELECT id FROM {WARM} w UNION ALL SELECT id FROM s"),
        (
            "SELECT * FROM both",
            f"SELECT id, k FROM {WARM} w UNION ALL SELECT c, 'odd' FROM (SELECT `a b` AS c FROM {ODD} o)",
        ),
        (
            "SELECT count(*) AS n FROM TUMBLE(TABLE warm, DESCRIPTOR(ts), INTERVAL 1 MINUTE) "
            "GROUP BY window_start, window_end",
            f"SELECT count(*) AS n FROM TUMBLE({WARM}, DESCRIPTOR(ts), INTERVAL 1 MINUTE) "
            "GROUP BY window_start, window_end",
        ),
        # names that the query declares hide views, and do not change what views read
        ("WITH warm AS (SELECT id FROM plain_ids) SELECT id FROM warm", "SELECT id FROM s WHERE id = 7"),
        ("WITH x AS (SELECT id FROM warm) SELECT id FROM x", f"SELECT id FROM {WARM} x"),
        ("WITH s AS (SELECT 1 AS one FROM warm) SELECT one FROM s", f"SELECT 1 AS one FROM {WARM} w"),
        (
            "WITH warm AS (SELECT id FROM warm WHERE t > 20) SELECT id FROM warm",
            f"SELECT id FROM {WARM} w WHERE t > 20",
        ),
    ],
)
def test_a_query_over_views_is_that_with_subqueries_in_their_place(query: str, inlined: str) -> None:
    catalog = draft(VIEWS + "; CREATE VIEW plain_ids AS SELECT id FROM s WHERE id = 7").catalog
    found, wanted = plan(query, catalog), plan(inlined, catalog)
    assert found.choice.host == "shared" and found.program == wanted.program


def test_a_filter_over_a_view_decodes_only_the_columns_of_both() -> None:
    catalog = draft().catalog
    planned = plan("SELECT c FROM `odd name` WHERE `a b` > 3", catalog)
    schema = planned.stream.schema
    assert [schema[i].name for i in planned.program.view.indexes(len(schema))] == ["id", "temp"]
    assert [v.name for v in planned.views] == ["Warm", "odd name"]
    assert "views: Warm, odd name" in explain(planned, None) and '"Warm"' in explain_json(planned, None)


def test_views_reach_spark_as_text_in_front_of_the_query() -> None:
    catalog, spark = draft().catalog, Checker(conditions=("(e.id > 3)",))
    planned = plan("SELECT w.id, d.name FROM warm w JOIN dim d ON w.k = d.k WHERE w.id > 3", catalog, spark)
    assert planned.choice.host == "epoch" and planned.program.stream == "s"
    assert spark.asked[0].startswith("WITH `Warm` AS (") and spark.asked[0].endswith("WHERE w.id > 3")
    hidden = "WITH warm AS (SELECT * FROM warm), b AS (SELECT 1) SELECT soundex_of(k) AS x FROM warm JOIN b"
    plan(hidden, catalog, spark)
    assert spark.asked[1].startswith("WITH `Warm` AS (") and spark.asked[1].endswith(f"({hidden})")
    foreign = run(draft(), "CREATE VIEW joined AS SELECT id FROM warm JOIN parquet.`/x` p USING (k); DESCRIBE joined")
    assert foreign[0].text == "created view joined"


def code_at(made: Draft, script: str) -> tuple[str, str]:
    """The code of the error and the text that it points to."""
    before = made.catalog
    with pytest.raises(HeadraceError) as caught:
        run(made, script)
    span = caught.value.span
    assert span is not None and made.catalog is before, "nothing changes"
    return caught.value.code, span.text[span.start : span.end]


@pytest.mark.parametrize(
    ("script", "code", "place"),
    [
        ("CREATE VIEW v AS SELECT * FROM v", "RECURSIVE_VIEW", "v"),
        ("CREATE OR REPLACE VIEW warm AS SELECT * FROM `odd name`", "RECURSIVE_VIEW", "SELECT * FROM `odd name`"),
        ("CREATE VIEW v AS SELECT * FROM nothing", "UNKNOWN_STREAM", "nothing"),
        ("CREATE VIEW v AS SELECT no FROM warm", "UNKNOWN_COLUMN", "no"),
        ("CREATE VIEW v (a, b) AS SELECT id FROM warm", "WRONG_ARGUMENTS", "SELECT id FROM warm"),
        ("CREATE VIEW v (a, A) AS SELECT id, t FROM warm", "DUPLICATE_NAME", "A"),
        ("CREATE VIEW v (a, b) AS SELECT id, no FROM s", "UNKNOWN_COLUMN", "no"),
        ("CREATE VIEW v AS SELECT id FROM s EMIT CHANGES", "SYNTAX_ERROR", "EMIT CHANGES"),
        ("CREATE TEMP VIEW v AS SELECT id FROM s", "SYNTAX_ERROR", "TEMP"),
        ("CREATE VIEW v AS SELECT id FROM s ORDER BY id", "UNBOUNDED_SORT", "ORDER"),
        ("CREATE VIEW s AS SELECT id FROM warm", "ALREADY_EXISTS", "CREATE VIEW s AS SELECT id FROM warm"),
        ("CREATE VIEW warm AS SELECT id FROM s", "ALREADY_EXISTS", "CREATE VIEW warm AS SELECT id FROM s"),
        (
            "CREATE OR REPLACE VIEW warm AS SELECT id FROM s",
            "IN_USE",
            "CREATE OR REPLACE VIEW warm AS SELECT id FROM s",
        ),
        ("DROP VIEW warm", "IN_USE", "DROP VIEW warm"),
        ("DROP STREAM s", "IN_USE", "DROP STREAM s"),
        ("DROP VIEW colder", "UNKNOWN_VIEW", "DROP VIEW colder"),
        ("EXPLAIN SELECT id, no FROM warm", "UNKNOWN_COLUMN", "no"),
        ("EXPLAIN WITH a AS (SELECT id FROM warm) SELECT id, no FROM a", "UNKNOWN_COLUMN", "no"),
        ("EXPLAIN WITH warm AS (SELECT id FROM warm) SELECT id, no FROM warm", "UNKNOWN_COLUMN", "no"),
        ("EXPLAIN CREATE PIPELINE p INTO nowhere AS SELECT id FROM warm", "UNKNOWN_SINK", "nowhere"),
    ],
)
def test_a_mistake_has_a_code_and_points_to_the_users_own_text(script: str, code: str, place: str) -> None:
    assert code_at(draft(), "SHOW STREAMS;\n" + script) == (code, place)


def test_an_error_inside_of_a_view_points_to_its_name() -> None:
    made = draft()
    made.catalog = made.catalog.without("stream", "s")
    assert code_at(made, "EXPLAIN SELECT c FROM `odd name` WHERE c > 1") == ("UNKNOWN_STREAM", "`odd name`")


def test_replacing_a_view_names_the_pipelines_that_keep_the_old_one_and_explain_shows_what_runs() -> None:
    made = draft("CREATE VIEW v AS SELECT id FROM s WHERE id > 1; CREATE VIEW w AS SELECT * FROM v")
    run(made, "CREATE PIPELINE p INTO out AS SELECT id FROM w; CREATE PIPELINE q INTO out AS SELECT id FROM s")
    (answer,) = run(made, "CREATE OR REPLACE VIEW V AS SELECT id, k FROM s WHERE id > 2")
    assert len(answer.warnings) == 1 and ": p;" in answer.warnings[0]
    assert made.catalog.views["w"].output.names == ("id", "k"), "views over it are planned again"
    (shown,) = run(made, "EXPLAIN PIPELINE p")
    assert "(id > 1)" in shown.text and "(id > 2)" not in shown.text
    assert code_at(made, "CREATE PIPELINE p INTO out AS SELECT id FROM w")[0] == "ALREADY_EXISTS"
    same, kept, other = run(
        made,
        "CREATE VIEW v AS SELECT id, k FROM s WHERE id > 2; CREATE VIEW IF NOT EXISTS v AS SELECT 1 AS x FROM s;"
        "DROP VIEW IF EXISTS nothing",
    )
    assert (same.text, bool(kept.warnings), other.text) == ("view V is as declared", True, "there is no view nothing")
    run(made, "DROP PIPELINE p; DROP VIEW w; DROP VIEW v; DROP PIPELINE q; DROP STREAM s")
    assert not made.catalog.views


def test_views_are_stored_with_the_catalog_and_in_savepoints_of_their_stream(tmp_path: Path) -> None:
    catalog = draft().catalog
    state = tmp_path / "state"
    state.mkdir()
    CatalogFile(state).save(catalog)
    assert CatalogFile(state).read().views == catalog.views
    for stream, kept in (("s", set(catalog.views)), ("plain", set())):
        savepoints.collect(tmp_path / stream, "one", catalog, [(state, savepoints.Cut(stream, stream, "c", 1))])
        assert set(CatalogFile(tmp_path / stream).read().views) == kept


def test_views_are_laid_out_like_pipelines() -> None:
    made = formatted("create or replace view v as select a,b from s;show views;drop view if exists v")
    assert made == "CREATE OR REPLACE VIEW v AS\n  SELECT a, b\n  FROM s;\n\nSHOW VIEWS;\n\nDROP VIEW IF EXISTS v\n"
