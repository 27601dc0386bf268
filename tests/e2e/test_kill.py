"""SIGKILL and SIGTERM at named places and anywhere, then start again: sinks hold exactly the right rows.

All runs use one state directory. The long version, with every place and random moments, is
`make soak-kill`.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from headrace.state.progress import read_progress
from tests.e2e.kills import ELSEWHERE, LONG, POINTS, Case
from tests.state.test_savepoints import PLACES

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_run_that_is_killed_over_and_over_and_started_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    # More input than all the runs before the last can read: a fault point that is not reached would prove nothing.
    case = Case(tmp_path, rows=3000, epoch_bytes=8_000).prepare()
    # 1: after the first task's file of an early epoch.
    assert case.run("after-task-file@4") == -9
    # 2: between two sinks: the first has committed, the second has only promised.
    assert case.run("between-sinks@1") == -9
    # 3: the Spark query of an epoch has staged its rows in the sink, and nothing is committed.
    assert case.run("after-epoch-queries@3") == -9
    # 4: an orderly end. The run prints which epoch it waited for, and the next run continues there.
    stream = tmp_path / "state" / "streams" / "s"
    said = case.run_and_terminate_in_epoch(read_progress(stream).epoch + 3)
    assert re.search(r"epoch \d+ of stream s\b", said)
    # 5: anywhere in its first epochs, but not while Spark starts, which proves nothing about epochs.
    rng = random.Random(tmp_path.name)
    case.run_and_kill_in_epoch(read_progress(stream).epoch + rng.randint(1, 3), rng.uniform(0, 1))
    # 6: a barrier row gets lost on its way to a lane: nothing of that epoch is committed, and it is run again.
    assert case.run("drop-barrier-row@9") == 0
    assert "MISSING_INPUT" in case.said and "task 0" in case.said
    case.check()


@LONG
def test_a_query_on_the_dedicated_host_that_is_killed_at_each_of_its_steps_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, rows=2400, epoch_bytes=8_000).prepare()
    # 1: the commit of an epoch has written the feed, and Spark has not logged the epoch.
    assert case.run("after-feed-manifest@3") == -9
    # 2: a batch has staged its rows in the sink.
    assert case.run("after-dedicated-staging@2") == -9
    # 3: the sink has committed the batch, and nothing else knows it.
    assert case.run("after-dedicated-commit@2") == -9
    # 4: its progress is stored, and Spark has not logged it.
    assert case.run("after-dedicated-progress@2") == -9
    # 5: a task has written a segment.
    assert case.run("after-feed-segment@4") == -9
    assert case.run() == 0
    case.check()


def test_the_fault_points_are_those_of_the_code() -> None:
    source = Path(__file__).parents[2] / "src" / "headrace"
    named = {
        name for file in source.rglob("*.py") for name in re.findall(r'\bfault_point\("([a-z-]+)"\)', file.read_text())
    }
    of_restoring = {place.partition("@")[0] for place in PLACES}
    assert named == set(POINTS) | set(ELSEWHERE) | of_restoring
