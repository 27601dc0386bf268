"""A few rounds of the soaks on the Spark session of the tests. Long versions: `make soak-kill`, `make soak-faults`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.soak.damage import targets
from tests.soak.damaged import Template
from tests.soak.faults import damage_files
from tests.soak.hubs import LocalHub
from tests.soak.life import Case
from tests.state.files_page import unlisted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_kills_of_worker_daemon_planner_and_gateway_lose_and_double_nothing(
    spark_of_the_run: SparkSession, tmp_path: Path
) -> None:
    case = Case(tmp_path, seed=5)
    case.begin(LocalHub(case.state, spark_of_the_run))
    try:
        case.heal()
        for target in ("gateway", "worker", "planner", "daemon"):
            case.live(target)
        assert set(case.kills) == {"gateway", "worker", "planner", "daemon"}, case.history
        case.end()
    finally:
        case.sender.stop()
        case.hub.close()
    case.check()


def test_a_damaged_file_is_named_or_does_no_harm(spark_of_the_run: SparkSession, tmp_path: Path) -> None:
    made = Template(tmp_path, "clean")
    hub = LocalHub(tmp_path / "state", spark_of_the_run)
    try:
        made.work(hub)
    finally:
        hub.close()
    made.keep()
    segment = max((tmp_path / "state/streams/t/source/journal").glob("segment-*.raw"))  # each hub begins a new one
    chosen = {
        "state/catalog.json": "removed",
        "state/streams/s/progress.json": "halved",
        "state/streams/s/current": "emptied",
        str(segment.relative_to(tmp_path)): "flipped",
    }
    found = {str(target.path): target for target in targets(tmp_path)}
    assert unlisted(path.removeprefix("state/") for path in found if path.startswith("state/")) == []
    trials = [(found[path], fault) for path, fault in chosen.items()]
    results = damage_files(made, spark_of_the_run, trials, seed=1)
    assert {key: outcome for key, outcome in results.items() if not outcome.ok} == {}
    assert len(results) == len(chosen)
