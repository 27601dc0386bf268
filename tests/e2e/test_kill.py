"""SIGKILL at named places, then start again: sinks hold exactly the right rows.

One state directory lives through all of it, as on a bad day. The long version, with every place and random moments, is
`make soak-kill`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.kills import POINTS, Case

pytestmark = [pytest.mark.spark, pytest.mark.slow]


# After the offset log, after the first task's file, between two sinks' manifests, after the manifests and before
# Spark's commit log.
SHORT = ("after-offset-log", "after-task-file", "between-sinks", "after-manifests")


def test_a_run_that_is_killed_at_fault_points_and_started_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    # More input than all the runs before the last can read: a fault point that is not reached would prove nothing.
    case = Case(tmp_path, rows=4000, epoch_bytes=8_000).prepare()
    # A restart first runs the epoch that was cut off again, with its old plan; the epoch after that is the first with
    # the plan version that the restart made. Visits are chosen so that both kinds are hit.
    visits = {"after-offset-log": 2, "after-task-file": 4, "after-manifests": 2}
    for point in SHORT:
        assert case.run(f"{point}@{visits.get(point, 1)}") == -9, f"{point} was not reached"
    assert case.run() == 0
    case.check()


def test_the_fault_points_are_those_of_the_code() -> None:
    source = Path(__file__).parents[2] / "src" / "headrace"
    named = {
        name for file in source.rglob("*.py") for name in re.findall(r'\bfault_point\("([a-z-]+)"\)', file.read_text())
    }
    assert named == set(POINTS)
