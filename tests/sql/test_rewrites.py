"""Executes plans before and after every rule, and the program: all return the same rows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headrace.sql.plan.logical import AssignWindow, Plan, walk_plan
from tests.sql.data import rows_of
from tests.sql.execute import bag, run_plan, run_program
from tests.sql.support import MEANING, SEPARATOR, golden_files, plan

PLANS = golden_files("plans")


def _query(path: Path) -> str:
    return path.read_text("utf-8").partition(SEPARATOR)[0]


def _has_session(node: Plan) -> bool:
    return any(isinstance(p, AssignWindow) and p.window.kind == "session" for p in walk_plan(node))


@pytest.mark.parametrize("path", PLANS, ids=lambda p: p.stem)
def test_no_rule_changes_the_rows(path: Path) -> None:
    planned = plan(_query(path))
    if _has_session(planned.bound):
        return  # which rows form a session depends on the group; the program's own test below covers it
    rows = rows_of(planned.stream, 60, seed=3)
    expected = bag(run_plan(planned.bound, rows, MEANING))
    for name, after in planned.trace:
        if isinstance(after, Plan):
            assert bag(run_plan(after, rows, MEANING)) == expected, f"rule {name} changed the rows"
    assert bag(run_program(planned.program, rows)) == expected


@pytest.mark.parametrize("path", PLANS, ids=lambda p: p.stem)
def test_rows_do_not_depend_on_how_the_input_is_cut_and_merged(path: Path) -> None:
    planned = plan(_query(path))
    for seed in range(2):
        rows = rows_of(planned.stream, 40, seed)
        whole = bag(run_program(planned.program, rows))
        chance = random.Random(seed)
        for _ in range(2):
            assert bag(run_program(planned.program, rows, chance)) == whole
