"""Golden plans: each file of plans/ has a query and the output of EXPLAIN."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.model import codec
from headrace.model.program import PipelineProgram
from headrace.sql import explain, explain_json
from headrace.sql.plan.physical import Physical, PhysicalAggregate, topological
from tests.sql.support import SEPARATOR, check_golden, golden_files, plan

PLANS = golden_files("plans")


@pytest.mark.parametrize("path", PLANS, ids=lambda p: p.stem)
def test_explain_matches_the_golden_file(path: Path) -> None:
    given = path.read_text("utf-8").partition(SEPARATOR)[0]
    planned = plan(given)
    check_golden(path, given, explain(planned, None, mode="verbose" if given.startswith("-- verbose") else "plain"))


@pytest.mark.parametrize("path", PLANS, ids=lambda p: p.stem)
def test_a_program_can_be_stored_and_planning_is_deterministic(path: Path) -> None:
    given = path.read_text("utf-8").partition(SEPARATOR)[0]
    program = plan(given).program
    assert codec.load(PipelineProgram, codec.dump(program)) == program
    assert codec.dump(plan(given).program) == codec.dump(program)
    assert explain_json(plan(given), None) == explain_json(plan(given), None)


def test_the_golden_plans_cover_every_operator() -> None:
    found: set[type[Physical]] = set()
    for path in PLANS:
        found |= {type(node) for node in topological(plan(path.read_text("utf-8").partition(SEPARATOR)[0]).physical)}
    assert found == {kind for kind in _kinds(Physical) if kind.__name__.startswith("Physical")} - {PhysicalAggregate}


def _kinds(kind: type[Physical]) -> set[type[Physical]]:
    return {found for child in kind.__subclasses__() for found in (child, *_kinds(child))}
