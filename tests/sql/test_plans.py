"""Golden plans: each file of plans/ holds a query and what EXPLAIN says about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.model import codec
from headrace.model.program import PipelineProgram
from headrace.sql import explain, explain_json
from tests.sql.support import SEPARATOR, check_golden, golden_files, plan

PLANS = golden_files("plans")


@pytest.mark.parametrize("path", PLANS, ids=lambda p: p.stem)
def test_explain_says_what_the_golden_file_says(path: Path) -> None:
    given = path.read_text("utf-8").partition(SEPARATOR)[0]
    planned = plan(given)
    check_golden(path, given, explain(planned, None, verbose=given.startswith("-- verbose")))


@pytest.mark.parametrize("path", PLANS, ids=lambda p: p.stem)
def test_a_program_survives_being_stored_and_planning_twice_gives_the_same(path: Path) -> None:
    given = path.read_text("utf-8").partition(SEPARATOR)[0]
    program = plan(given).program
    assert codec.load(PipelineProgram, codec.dump(program)) == program
    assert codec.dump(plan(given).program) == codec.dump(program)
    assert explain_json(plan(given), None) == explain_json(plan(given), None)


def test_there_are_at_least_sixty_golden_plans() -> None:
    assert len(PLANS) >= 60
