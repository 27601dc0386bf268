"""Each rule has a fixture file in rules/: queries, and the plan before and after that rule alone.

The plan before is the plan after the earlier rules of the tuple. HEADRACE_REWRITE=1 rewrites the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from headrace.errors import RuleBrokePlan, UnsupportedOnShared
from headrace.model.schema import INT
from headrace.sql.bind.binder import bind_query
from headrace.sql.explain.explain_text import show_physical
from headrace.sql.explain.plan_text import show_plan
from headrace.sql.lowering import lower
from headrace.sql.parse.script import parse_script
from headrace.sql.parse.statements import CreatePipeline, Select
from headrace.sql.parse.syntax import ForeignQuery
from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.expr import Literal
from headrace.sql.plan.logical import Named, Plan, Project
from headrace.sql.plan.physical import Physical, PhysicalCommit, PhysicalSink
from headrace.sql.plan.shape import shared_shape
from headrace.sql.rules import LOGICAL_RULES, PHYSICAL_RULES, optimize
from tests.sql.data import rows_of
from tests.sql.execute import bag, run_plan
from tests.sql.support import HERE, MEANING, REWRITE, names, plan

RULES = (*LOGICAL_RULES, *PHYSICAL_RULES)
NAMES = [rule.__name__ for rule in RULES]


def _stages(query: str, rule: str) -> tuple[Plan | Physical, Plan | Physical, PlanContext]:
    """The plan before and after `rule`."""
    (statement,) = parse_script(query)
    assert isinstance(statement, Select | CreatePipeline) and not isinstance(statement.query, ForeignQuery)
    ctx = PlanContext(MEANING, query, 1)
    logical = bind_query(statement.query, names(), ctx)
    for step in LOGICAL_RULES:
        after = step(logical, ctx)
        if step.__name__ == rule:
            return logical, after, ctx
        logical = after
    found = [names().sink(s) for s in statement.sinks] if isinstance(statement, CreatePipeline) else []
    sinks = tuple(s for s in found if s is not None)
    physical: Physical = lower(shared_shape(logical, ctx.span), sinks, statement, ctx.span)
    for turn in PHYSICAL_RULES:
        changed = turn(physical, ctx)
        if turn.__name__ == rule:
            return physical, changed, ctx
        physical = changed
    raise AssertionError(f"no rule {rule}")


def _text(node: Plan | Physical) -> str:
    return show_plan(node) if isinstance(node, Plan) else show_physical(node)


def _queries(rule: str) -> Iterator[str]:
    text = (HERE / "rules" / f"{rule}.txt").read_text("utf-8")
    for block in re.split(r"\n{2,}(?=SELECT|WITH|CREATE)", text.strip()):
        yield block.split("\n")[0]


def _rendered(rule: str) -> str:
    blocks = []
    for query in _queries(rule):
        before, after, _ = _stages(query, rule)
        changed = "no change" if after is before else f"after\n{_text(after)}"
        blocks.append(f"{query}\nbefore\n{_text(before)}\n{changed}")
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("rule", NAMES)
def test_a_rule_does_what_its_fixture_file_says(rule: str) -> None:
    path = HERE / "rules" / f"{rule}.txt"
    actual = _rendered(rule)
    if REWRITE:
        path.write_text(actual, "utf-8")
    assert path.read_text("utf-8") == actual


@pytest.mark.parametrize("rule", [r.__name__ for r in LOGICAL_RULES])
def test_a_rule_keeps_the_rows_of_its_fixtures(rule: str) -> None:
    for query in _queries(rule):
        before, after, _ = _stages(query, rule)
        assert isinstance(before, Plan) and isinstance(after, Plan)
        rows = rows_of(plan(query).stream, 60, seed=5)
        assert bag(run_plan(before, rows, MEANING)) == bag(run_plan(after, rows, MEANING)), query


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__)
def test_a_rule_returns_the_same_object_when_nothing_is_left_to_do(rule: object) -> None:
    assert callable(rule)
    name = getattr(rule, "__name__", "")
    for query in _queries(name):
        _, after, ctx = _stages(query, name)
        assert rule(after, ctx) is after, query


def test_every_rule_has_a_fixture_file_and_every_file_a_rule() -> None:
    assert sorted(p.stem for p in (HERE / "rules").glob("*.txt")) == sorted(NAMES)


@pytest.mark.parametrize("query", ["SELECT id FROM s", "SELECT k, count(*) AS c FROM s GROUP BY k"])
def test_the_sinks_of_a_pipeline_read_one_operator_and_end_in_one_commit(query: str) -> None:
    commit = plan(f"CREATE PIPELINE p INTO out, other AS {query}").physical
    assert isinstance(commit, PhysicalCommit)
    assert [n.sink.name for n in commit.inputs if isinstance(n, PhysicalSink)] == ["out", "other"]
    assert len({id(n.inputs[0]) for n in commit.inputs}) == 1


@pytest.mark.parametrize(
    ("query", "guilty"),
    [
        ("SELECT id FROM s UNION ALL SELECT a FROM plain", "SELECT id FROM s UNION ALL SELECT a FROM plain"),
        ("SELECT max(c) AS m FROM (SELECT k, count(*) AS c FROM s GROUP BY k) q", "k"),
        (
            "SELECT * FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE)",
            "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE)",
        ),
    ],
)
def test_a_plan_in_another_shape_is_refused_at_the_part_that_does_not_fit(query: str, guilty: str) -> None:
    with pytest.raises(UnsupportedOnShared) as caught:
        plan(query)
    assert caught.value.span is not None
    assert query[caught.value.span.start : caught.value.span.end] == guilty


def test_a_rule_that_changes_the_output_is_named() -> None:
    def drop_a_column(node: Plan, ctx: PlanContext) -> Plan:
        assert isinstance(node, Project)
        return Project(node.input, node.outputs[:-1])

    planned = plan("SELECT id, k FROM s")
    with pytest.raises(RuleBrokePlan) as caught:
        optimize(planned.bound, PlanContext(MEANING), (drop_a_column,))
    assert caught.value.params["rule"] == "drop_a_column"


def test_a_rule_that_builds_an_invalid_node_is_named() -> None:
    def read_a_missing_column(node: Plan, ctx: PlanContext) -> Plan:
        inner = plan("SELECT id FROM s").bound
        return Project(Project(inner, (Named("a", Literal(INT, 1)),)), plan("SELECT k FROM s").bound.outputs)  # type: ignore[attr-defined]

    with pytest.raises(RuleBrokePlan) as caught:
        optimize(plan("SELECT id FROM s").bound, PlanContext(MEANING), (read_a_missing_column,))
    assert caught.value.params["rule"] == "read_a_missing_column"
