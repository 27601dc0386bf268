"""The choice of a host, and plans for the epoch host, without Spark: a checker with given answers takes its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from headrace.errors import BadWindow, HeadraceError, SparkRefused, UnsupportedStateful
from headrace.hub.redeclaring import same_pipeline
from headrace.model.definitions import PipelineDef
from headrace.model.program import Meaning, OutputMode, SessionVariable
from headrace.model.schema import BIGINT, STRING, Field, Schema, View
from headrace.sql import CreatePipeline, Planned, Select, explain, parse_script, plan_pipeline
from headrace.sql.bind.column_names import ColumnNames
from headrace.sql.bind.meanings import Meanings
from headrace.sql.functions import spark_functions
from headrace.sql.hosts.clock_calls import clock_calls, clock_edits
from headrace.sql.hosts.query_tokens import blocker_in, may_need, names_read
from headrace.sql.hosts.select_split import split_select
from headrace.sql.hosts.spark_checker import Blocker, SparkFindings, StaticTable, StreamingFindings, StreamRelation
from headrace.sql.hosts.text_edits import edited
from headrace.sql.parse.dialect import tokenize
from headrace.sql.parse.syntax import ForeignQuery
from headrace.sql.plan.event_times import TimeOrigin, inherited
from tests.sql.functions.missing import MISSING
from tests.sql.support import golden_files, names

OUTPUT = Schema((Field("a", BIGINT), Field("b", STRING)))
S = names().streams["s"].schema
AS_WRITTEN = ColumnNames(Meanings(), "UTC")


@dataclass
class Checker:
    """Gives the same findings to every question, and keeps the questions."""

    conditions: tuple[str, ...] = ()
    columns: tuple[int, ...] = (0, 3)
    blocker: Blocker | None = None
    tables: tuple[StaticTable, ...] = ()
    refuses: SparkRefused | None = None
    at_hand: bool = True
    asked: list[str] = field(default_factory=list)
    streaming: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)
    streaming_blocker: Blocker | None = None
    refuses_streaming: HeadraceError | None = None
    times: dict[int, TimeOrigin] = field(default_factory=dict)
    variables: tuple[SessionVariable, ...] = ()

    def check(self, sql: str, relation: str, schema: Schema) -> SparkFindings:
        self.asked.append(sql)
        if self.refuses is not None:
            raise self.refuses
        conditions = tuple(c.replace("NOW", str(len(self.asked))) for c in self.conditions)
        return SparkFindings(OUTPUT, self.columns, conditions, "e", self.tables, self.blocker, "a plan")

    def check_streaming(
        self, sql: str, relations: Sequence[StreamRelation], modes: Sequence[OutputMode]
    ) -> StreamingFindings:
        self.streaming.append((sql, tuple(r.name for r in relations), tuple(modes)))
        if self.refuses_streaming is not None:
            raise self.refuses_streaming
        conditions = {r.name: (self.conditions, "e") for r in relations}
        found = StreamingFindings(OUTPUT, modes[0], False, conditions, self.streaming_blocker, "a plan")
        return replace(found, times=self.times, variables=self.variables)


def plan(text: str, spark: Checker | None = None) -> Planned:
    (statement,) = parse_script(text)
    assert isinstance(statement, Select | CreatePipeline)
    return plan_pipeline(statement, names(), Meaning(), spark)


def code(text: str, spark: Checker | None = None) -> str:
    with pytest.raises(HeadraceError) as caught:
        plan(text, spark)
    assert caught.value.span is not None
    return caught.value.code


JOIN = "SELECT e.id, d.name FROM s e JOIN dim d ON e.k = d.k WHERE e.id > 3"


def test_the_shared_host_runs_what_it_can() -> None:
    spark = Checker()
    planned = plan("SELECT id FROM s WHERE id > 3", spark)
    assert (planned.choice.host, planned.program.spark, spark.asked) == ("shared", None, [])


def test_a_join_runs_on_the_epoch_host_with_the_columns_and_conditions_that_spark_asks_for() -> None:
    planned = plan(JOIN, Checker(conditions=("(e.id > 3)", "(soundex_of(e.k) = 'x')")))
    assert planned.choice.host == "epoch" and planned.choice.expression == "JOIN dim"
    program = planned.program
    assert program.view == View.some((0, 3)) and program.output == OUTPUT
    assert program.spark is not None and program.spark.staged.names == ("id", "k")
    assert program.ring0.filter is not None and program.ring0.filter_columns == (0,), "only the verified condition"


def test_a_column_that_only_the_analyzer_needs_is_staged_too() -> None:
    planned = plan("SELECT e.id, typeof_of(e.price) AS t FROM s e JOIN dim d ON e.k = d.k", Checker())
    assert planned.program.view == View.some((0, 3, 6))


def test_without_spark_a_query_is_planned_with_the_columns_that_it_names_and_not_checked() -> None:
    planned = plan(JOIN)
    assert planned.program.view == View.some((0, 3))
    assert planned.program.ring0.filter is None
    assert "Spark checks it" in explain(planned, None)


def test_conditions_that_depend_on_the_clock_are_not_pushed_down() -> None:
    spark = Checker(conditions=("(e.id > NOW)", "(e.id > 3)"))
    planned = plan("SELECT e.id, d.name FROM s e JOIN dim d ON e.k = d.k WHERE e.ts > now() AND e.id > 3", spark)
    assert len(spark.asked) == 2 and "now()" not in spark.asked[0] and spark.asked[0] != spark.asked[1]
    assert planned.program.ring0.filter_columns == (0,)
    assert planned.program.spark is not None and [c[2] for c in planned.program.spark.clocks] == ["now"]


def test_a_query_that_needs_no_column_stages_its_rows_all_the_same() -> None:
    planned = plan("SELECT my_random_free('x') AS r FROM s", Checker(columns=()))
    assert planned.program.view == View.none()
    assert planned.program.spark is not None and len(planned.program.spark.staged) == 1


@pytest.mark.parametrize("spark", [None, Checker()], ids=["without Spark", "with Spark"])
def test_no_function_of_spark_is_called_unknown_and_those_that_are_missing_here_run_on_the_epoch_host(
    spark: Checker | None,
) -> None:
    refused = {"NON_DETERMINISTIC", "UNSUPPORTED_STATEFUL", "MISPLACED_AGGREGATE", "SYNTAX_ERROR"}
    hosts: dict[str, set[str]] = {}
    for name in filter(str.isidentifier, sorted(spark_functions())):
        try:
            host: str = plan(f"SELECT {name}(id, k) AS r FROM s", spark).choice.host
        except HeadraceError as problem:
            host = problem.code
            assert name not in MISSING or host in refused, name
        hosts.setdefault(host, set()).add(name)
    assert "UNKNOWN_FUNCTION" not in hosts
    assert len(hosts["epoch"] & MISSING) > 100


@pytest.mark.parametrize("name", ["count_min_sketch", "approx_top_k", "hll_sketch_agg", "theta_union_agg"])
def test_an_aggregate_that_only_spark_has_runs_on_the_dedicated_host_also_without_spark(name: str) -> None:
    for query in (f"SELECT {name}(id) AS r FROM s", f"SELECT k, {name}(id) AS r FROM s GROUP BY k"):
        planned = plan(query)
        assert planned.choice.host == "dedicated"
        assert name in planned.choice.expression
        assert "not checked" in explain(planned, None)


def test_a_comparison_that_fails_on_every_row_is_refused_although_spark_would_plan_it() -> None:
    assert code("SELECT id FROM s WHERE price > 'hot'", Checker()) == "BAD_LITERAL"


def test_the_reason_of_a_refusal_is_sparks_own_unless_ours_points_at_a_name() -> None:
    refused = SparkRefused("no", at=(9, 13))
    assert code("SELECT e.id FROM s e JOIN dim d ON e.k = d.k", Checker(refuses=refused)) == "SPARK_REFUSED"
    assert code("SELECT no_such(id) FROM s", Checker(refuses=SparkRefused("no"))) == "UNKNOWN_FUNCTION"
    assert code("SELECT no_such(id) FROM s") == "UNKNOWN_FUNCTION"
    assert code("SELECT no_such(id) FROM s", Checker(at_hand=False)) == "UNKNOWN_FUNCTION"
    assert plan("SELECT no_such(id) FROM s", Checker()).choice.host == "epoch", "the session may have the function"


def test_what_spark_finds_to_keep_state_runs_on_the_dedicated_host() -> None:
    for kind in ("stateful", "join"):
        planned = plan(JOIN, Checker(blocker=Blocker(kind, "it")))
        assert planned.choice.host == "dedicated"
        assert planned.choice.reason == "it needs state over several epochs"
    assert code(JOIN, Checker(blocker=Blocker("sort", "it", at=(0, 6)))) == "UNBOUNDED_SORT"
    assert code(JOIN, Checker(blocker=Blocker("random", "it"))) == "NON_DETERMINISTIC"
    forced = f"CREATE PIPELINE p INTO out WITH (host = 'epoch') AS {JOIN}"
    assert code(forced, Checker(blocker=Blocker("stateful", "it"))) == "UNSUPPORTED_ON_EPOCH"


def test_static_refresh_needs_a_static_table() -> None:
    text = f"CREATE PIPELINE p INTO out WITH (static_refresh = '5min') AS {JOIN}"
    at = JOIN.index("dim")
    planned = plan(text, Checker(tables=(StaticTable("`dim`", (at, at + 3), True),)))
    assert planned.program.spark is not None
    assert planned.program.spark.refresh_us == 300_000_000
    assert planned.program.spark.tables == ((at, at + 3, "`dim`", ""),)
    assert code(text, Checker()) == "BAD_OPTION"


SPLITS = {
    "SELECT k, f(max(id)) FROM s GROUP BY k": (
        "SELECT k AS _k0, max(id) AS _a0 FROM s  GROUP BY k",
        "SELECT _k0 AS `k`, f(_a0) AS `f(max(id))` FROM _groups",
    ),
    "SELECT f(e.K) AS x, max(id) + MAX(id) AS m FROM s e WHERE id > 1 GROUP BY k": (
        "SELECT k AS _k0, max(id) AS _a0 FROM s e WHERE id > 1  GROUP BY k",
        "SELECT f(_k0) AS `x`, _a0 + _a0 AS `m` FROM _groups",
    ),
    "SELECT f(window.start) AS x FROM s GROUP BY window(ts, '1 hour'), upper(k) HAVING f(upper(k)) > count(*)": (
        "SELECT window(ts, '1 hour') AS _k0, upper(k) AS _k1, count(*) AS _a0 FROM s  "
        "GROUP BY window(ts, '1 hour'), upper(k)",
        "SELECT f(_k0.`start`) AS `x` FROM _groups WHERE f(_k1) > _a0",
    ),
    "SELECT upper(k) AS u, f(sum(id) FILTER (WHERE ok)) AS x FROM s GROUP BY u": (
        "SELECT upper(k) AS _k0, sum(id) FILTER (WHERE ok) AS _a0 FROM s  GROUP BY upper(k)",
        "SELECT _k0 AS `u`, f(_a0) AS `x` FROM _groups",
    ),
    "WITH w AS (SELECT * FROM s) SELECT f(count(*)) AS n FROM w": (
        "WITH w AS (SELECT * FROM s) SELECT count(*) AS _a0 FROM w",
        "SELECT f(_a0) AS `n` FROM _groups",
    ),
}


def test_an_aggregate_that_the_rings_do_not_have_goes_to_the_dedicated_host_without_a_check_of_the_epoch_host() -> None:
    spark = Checker()
    planned = plan("SELECT k, count_min_sketch(id, 0.1, 0.9, 3) AS h FROM s GROUP BY k", spark)
    assert (planned.choice.host, spark.asked) == ("dedicated", [])
    assert [names for _, names, _ in spark.streaming] == [("s",)]


TWO = "SELECT e.id, p.a FROM s e JOIN plain p ON e.id = p.a WHERE e.id > 3"


def test_a_query_over_two_streams_runs_on_the_dedicated_host_with_one_feed_per_stream() -> None:
    planned = plan(TWO, Checker(conditions=("(e.id > 3)", "(soundex_of(e.k) = 'x')")))
    query = planned.program.dedicated
    assert query is not None and planned.choice.host == "dedicated"
    assert (planned.choice.expression, planned.program.output) == ("plain", OUTPUT)
    first, second = query.inputs
    assert (first.stream, first.relation, first.event_time) == ("s", "s", "ts")
    assert first.ring0.filter is not None and "soundex_of" not in first.ring0.filter
    assert set(first.staged.names) == {"id", "ts"}, "the columns that the query names, and the event time"
    assert (second.stream, second.event_time) == ("plain", None)
    made = PipelineDef("p", 7, (names().sinks["out"],), planned.program, 1)
    assert made.streams == ("s", "plain")
    part = made.on_stream("PLAIN")
    assert (part.instance, part.program.stream, [s.kind for s in part.sinks]) == (7, "plain", ["feed"])
    assert part.program.output == second.staged


def test_a_stream_of_the_output_inherits_what_spark_says_is_an_event_time() -> None:
    planned = plan(TWO, Checker(times={0: "event time", 1: "end of the window"}))
    found = inherited(planned.times)
    assert found is not None and (found.column, found.shift_us, found.delay_us) == (1, 0, 0)
    assert inherited(plan(TWO, Checker()).times) is None


def test_a_query_with_another_value_of_a_variable_is_another_query() -> None:
    text, out = f"CREATE PIPELINE p INTO out AS {TWO}", (names().sinks["out"],)
    one, other = (Checker(variables=(SessionVariable("least", "INT", value),)) for value in ("3", "4"))
    declared = PipelineDef("p", 7, out, plan(text, one).program, 1)
    assert same_pipeline(PipelineDef("p", 9, out, plan(text, one).program, 1), declared)
    assert not same_pipeline(PipelineDef("p", 9, out, plan(text, other).program, 1), declared)


def test_a_window_over_the_union_of_two_streams_runs_on_the_dedicated_host() -> None:
    both = "(SELECT id, ts FROM s UNION ALL SELECT a, current_timestamp() FROM plain)"
    planned = plan(f"SELECT window.start AS w, count(*) AS n FROM {both} GROUP BY window(ts, '1 minute')", Checker())
    assert planned.choice.host == "dedicated"
    with pytest.raises(BadWindow):
        plan("SELECT window.start AS w, count(*) AS n FROM s GROUP BY window(id, '1 minute')", Checker())


@pytest.mark.parametrize("spark", [None, Checker()], ids=["without Spark", "with Spark"])
@pytest.mark.parametrize(
    ("text", "host", "decided"),
    [
        ("SELECT id, window(ts, '1 minute').start AS w FROM s", "epoch", "window(ts, '1 minute')"),
        (
            "SELECT w.end AS e, count(*) AS n FROM (SELECT window(ts, '1 minute') AS w FROM s) GROUP BY w",
            "dedicated",
            "window(ts, '1 minute')",
        ),
        (
            "SELECT k, count(*) AS n FROM s GROUP BY session_window(ts, concat(id, ' seconds')), k",
            "dedicated",
            "concat(id, ' seconds')",
        ),
        ("FROM s |> WHERE id > 3", "epoch", "FROM"),
        ("SELECT id, k FROM s |> WHERE id > 3 |> SELECT k", "epoch", "|>"),
        ("FROM s |> AGGREGATE count(*) AS n GROUP BY k", "dedicated", "GROUP"),
        ("FROM s |> JOIN plain ON s.id = plain.a", "dedicated", "plain"),
    ],
)
def test_windows_without_groups_computed_gaps_and_pipes_run_on_spark(
    text: str, host: str, decided: str, spark: Checker | None
) -> None:
    planned = plan(text, spark)
    assert (planned.choice.host, planned.choice.expression) == (host, decided)


def test_a_pipe_passes_all_columns_on() -> None:
    assert plan("FROM s |> WHERE id > 3").program.view == View.all()
    query = plan("FROM s |> JOIN plain ON s.id = plain.a").program.dedicated
    assert query is not None and query.inputs[0].staged.names == S.names


def test_a_query_that_is_not_checked_yet_is_recognized_as_the_declared_one() -> None:
    text = f"CREATE PIPELINE p INTO out AS {TWO}"
    out = (names().sinks["out"],)
    declared = PipelineDef("p", 7, out, plan(text, Checker(conditions=("(e.id > 3)",))).program, 1)
    assert same_pipeline(PipelineDef("p", 9, out, plan(text).program, 1), declared)
    other = plan(text.replace("> 3", "> 4")).program
    assert not same_pipeline(PipelineDef("p", 9, out, other, 1), declared)


def test_the_output_mode_follows_emit() -> None:
    for emit, wanted in (("", ("append", "update")), (" EMIT CHANGES", ("update",)), (" EMIT ON CLOSE", ("append",))):
        spark = Checker()
        plan(f"SELECT k, count_min_sketch(id, 0.1, 0.9, 3) AS h FROM s GROUP BY k{emit}", spark)
        assert spark.streaming[0][2] == wanted


def test_what_no_host_runs_is_refused_with_a_code() -> None:
    refused = UnsupportedStateful("Spark's streaming refuses it", at=(0, 6))
    assert code(TWO, Checker(refuses_streaming=refused)) == "UNSUPPORTED_STATEFUL"
    assert code(TWO, Checker(streaming_blocker=Blocker("random", "f()"))) == "NON_DETERMINISTIC"
    assert code(TWO, Checker(streaming_blocker=Blocker("sort", "LIMIT"))) == "UNBOUNDED_SORT"
    assert code(f"{TWO} ORDER BY 1", Checker()) == "UNBOUNDED_SORT"
    assert code(TWO.replace("e.id,", "rand() AS r,"), Checker()) == "NON_DETERMINISTIC"
    assert code(f"CREATE PIPELINE p INTO out WITH (host = 'shared') AS {TWO}", Checker()) == "UNSUPPORTED_ON_SHARED"
    assert code(f"CREATE PIPELINE p INTO out WITH (host = 'epoch') AS {TWO}", Checker()) == "UNSUPPORTED_ON_EPOCH"


def test_options_of_feeds_need_the_dedicated_host() -> None:
    text = "CREATE PIPELINE p INTO out WITH (host = 'dedicated', backpressure = 'drop', feed_limit = '5mb') AS "
    query = plan(text + "SELECT id FROM s", Checker()).program.dedicated
    assert query is not None and (query.strategy, query.limit) == ("drop", "5mb")
    assert code(text.replace("host = 'dedicated', ", "") + "SELECT id FROM s", Checker()) == "BAD_OPTION"
    assert code(text.replace("'drop'", "'lose'") + "SELECT id FROM s", Checker()) == "BAD_OPTION"


@pytest.mark.parametrize("text", SPLITS)
def test_the_select_list_of_an_aggregate_is_split_from_its_groups(text: str) -> None:
    (statement,) = parse_script(text)
    assert isinstance(statement, Select) and not isinstance(statement.query, ForeignQuery)
    split = split_select(statement.query, text, tokenize(text), AS_WRITTEN)
    assert split is not None
    assert (split.groups, split.select_having) == SPLITS[text]


def test_columns_of_a_split_select_list_have_sparks_names() -> None:
    """Also where only Spark has a function: `f` is unknown here."""
    query = plan("SELECT e.k, upper(e.k), f(max(e.attrs.x)), year(max(e.day) + 1) FROM s e GROUP BY e.k", Checker())
    assert query.choice.host == "epoch" and query.program.spark is not None
    names = ("k", "upper(k)", "f(max(attrs[x]))", "year(date_add(max(day), 1))")
    assert all(f" AS `{name}`" in query.program.spark.sql for name in names), query.program.spark.sql
    query = plan("SELECT transform(collect_list(e.k), k -> upper(k)), f(max(e.k)) FROM s e GROUP BY e.id", Checker())
    assert query.program.spark is not None
    variable = "namedlambdavariable()"
    lists = f"transform(collect_list(k), lambdafunction(upper({variable}), {variable}))"
    assert all(f" AS `{name}`" in query.program.spark.sql for name in (lists, "f(max(k))")), query.program.spark.sql


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, soundex(k) AS z, count(*) AS n FROM s GROUP BY ROLLUP(k)",
        "SELECT k, count(*) AS n FROM s GROUP BY GROUPING SETS ((k), (id))",
        "SELECT abs(id) AS id, soundex(max(k)) AS z, count(*) AS n FROM s GROUP BY id",
    ],
)
def test_groups_that_would_be_others_are_not_split(text: str) -> None:
    """Grouping sets, and an alias that is also a column: Spark groups by the column."""
    (statement,) = parse_script(text)
    assert isinstance(statement, Select) and not isinstance(statement.query, ForeignQuery)
    assert split_select(statement.query, text, tokenize(text), AS_WRITTEN, columns={"id", "k"}) is None


def test_clock_calls_are_found_where_spark_sees_them() -> None:
    text = "SELECT now(), current_date, x.current_date, `now`, 'now()', 1 AS current_date, current_timestamp() FROM s"
    calls = clock_calls(tokenize(text), ())
    assert [text[a:b] for a, b, _ in calls] == ["now()", "current_date", "current_timestamp()"]
    assert clock_calls(tokenize("SELECT current_date FROM s"), ("Current_Date",)) == ()
    new = edited(text, clock_edits(calls, 1_500_000, "UTC"))
    assert "SELECT TIMESTAMP_LTZ '1970-01-01 00:00:01.500000+00:00', CAST(" in new.text
    for place in ("x.current", "'now()'", "FROM s"):
        assert new.original(new.text.index(place)) == text.index(place)


def test_texts_that_read_the_clock_are_clocks_too() -> None:
    text = (
        "SELECT DATE 'today', TIMESTAMP ' Now ', timestamp_ntz'tomorrow', localtime, current_time(3), localtimestamp, "
    )
    text += "localtimestamp(), DATE '2024-01-01', unix_timestamp(ts), d AS current_time FROM s"
    calls = clock_calls(tokenize(text), ())
    found = ["DATE 'today'", "TIMESTAMP ' Now '", "timestamp_ntz'tomorrow'", "localtime", "current_time(3)"]
    assert [text[a:b] for a, b, _ in calls] == [*found, "localtimestamp()"]
    new = edited(text, clock_edits(calls, 1_234_567, "Asia/Kolkata")).text
    moment = "TIMESTAMP_LTZ '1970-01-01 00:00:01.234567+00:00'"
    assert f"CAST(date_add(CAST({moment} AS DATE), 1) AS TIMESTAMP_NTZ)" in new
    assert "TIME '05:30:01.234567', TIME '05:30:01.234', localtimestamp, CAST(" in new
    assert f"localtimestamp, CAST({moment} AS TIMESTAMP_NTZ), DATE '2024" in new


def test_streams_and_columns_are_found_in_text_that_is_not_parsed() -> None:
    text = "SELECT a.x, sensors FROM s a, (SELECT * FROM t) JOIN LATERAL f(s) ON b = c, u WHERE d IN (SELECT 1 FROM v)"
    assert [t.text for t in names_read(tokenize(text))] == ["s", "t", "u", "v"]
    assert may_need(tokenize("SELECT ID * 2, count(*) FROM s WHERE temp > 3"), S) == (0, 1)
    assert may_need(tokenize("SELECT e.*, 1 FROM s e"), S) == tuple(range(len(S)))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT id FROM s WHERE id IN (SELECT id FROM t ORDER BY x LIMIT 3)", None),
        ("SELECT id FROM s LIMIT 3", "sort"),
        ("SELECT DISTINCT id FROM s", "stateful"),
        ("SELECT id, (SELECT rand() FROM t) FROM s", "random"),
        ("SELECT * EXCEPT (id) FROM s", None),
        ("SELECT id FROM s EXCEPT SELECT id FROM t", "stateful"),
        ("SELECT id AS limit FROM s", None),
        ("SELECT id FROM s UNION ALL SELECT id FROM s", None),
    ],
)
def test_what_no_host_can_run_is_found_in_text_that_is_not_parsed(text: str, kind: str | None) -> None:
    found = blocker_in(tokenize(text))
    assert (None if found is None else found.kind) == kind


def test_a_plan_that_spark_has_not_checked_is_recognized_as_the_declared_one() -> None:
    def defined(query: str, spark: Checker | None) -> PipelineDef:
        return PipelineDef("p", 1, (), plan(query, spark).program, 1)

    checked = Checker(conditions=("(e.id > 3)",))
    assert same_pipeline(defined(JOIN, None), defined(JOIN, checked))
    assert not same_pipeline(defined(JOIN.replace("3", "4"), None), defined(JOIN, checked))


def test_a_table_that_spark_knows_is_not_reported_as_an_unknown_stream() -> None:
    query = "SELECT id FROM s UNION ALL SELECT weight FROM dim"
    blocked = Blocker("join", "UNION ALL with a static table")
    refused = UnsupportedStateful("Spark's streaming refuses the query", resolved=True)
    assert code(query, Checker(blocker=blocked, refuses_streaming=refused)) == "UNSUPPORTED_STATEFUL"
    assert code(query, Checker(refuses=SparkRefused("no table dim"))) == "UNKNOWN_STREAM"


def test_no_error_speaks_of_the_shared_host_unless_it_was_asked_for() -> None:
    """What the shared host refuses goes to another host. If none runs it, the error is about the query."""
    tried = 0
    for path in golden_files("errors"):
        if not path.stem.startswith("unsupported_on_shared"):
            continue
        for statement in parse_script(path.read_text("utf-8")):
            if not isinstance(statement, Select | CreatePipeline):
                continue
            tried += 1
            try:
                shown = explain(plan_pipeline(statement, names(), Meaning()), None)
            except HeadraceError as problem:
                shown = problem.render()
            assert "shared host" not in shown, path.name
    assert tried > 40
