"""EXPLAIN against the runtime of the hosts that need Spark: printed operators and executed ones are the same.

`tests/sql/test_explain_truth.py` does this for the shared host, without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.bridge.messages import Row
from headrace.sinks.feed_log import FeedLog, feed_directory
from headrace.spark import dedicated_committer, query_output
from headrace.spark.epoch_queries import EpochQueries
from headrace.spark.epoch_query import EpochQuery, QueryOutcome
from headrace.spark.epoch_reports import EpochReports
from tests.e2e.support import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.hub.hub import Hub
    from headrace.model.definitions import PipelineDef

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 12
PIPELINES = {
    "every_row": ("epoch", "SELECT id, plus_one(id) AS y FROM s"),
    "some_rows": ("epoch", "SELECT id, plus_one(id) AS y FROM s WHERE id > 3"),
    "groups": ("epoch", "SELECT k, plus_one(count(*)) AS n FROM s GROUP BY k"),
    "fed": ("dedicated", "SELECT id FROM s"),
    "fed_in_part": ("dedicated", "SELECT id FROM s WHERE id > 3"),
    "joined": ("dedicated", "SELECT a.id FROM s a JOIN s b ON a.id = b.id WHERE a.id > 3"),
}


@dataclass
class Executed:
    """What ran, by instance: the messages of tasks and lanes, the Spark queries in commits, the dedicated batches."""

    reports: EpochReports = field(default_factory=EpochReports)
    decoded: int = 0
    in_commits: dict[int, set[str]] = field(default_factory=dict)
    in_batches: dict[int, set[str]] = field(default_factory=dict)

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        add, run, write = EpochReports.add, EpochQueries.run, query_output.write_output

        def adding(reports: EpochReports, row: Row) -> None:
            one = EpochReports()
            for place in (reports, self.reports, one):
                add(place, row)
            self.decoded += sum(task.rows for task in one.tasks.values())

        def running(queries: EpochQueries, asked: Sequence[EpochQuery], *others: Any) -> dict[int, QueryOutcome]:
            found = run(queries, asked, *others)
            for instance, outcome in found.items():
                self.in_commits.setdefault(instance, set()).update(outcome.receipts)
            return found

        def writing(rows: Any, pipeline: PipelineDef, *others: Any, **options: Any) -> Any:
            found = write(rows, pipeline, *others, **options)
            self.in_batches.setdefault(pipeline.instance, set()).update(name for name, some in found.items() if some)
            return found

        patch.setattr(EpochReports, "add", adding)
        patch.setattr(EpochQueries, "run", running)
        patch.setattr(dedicated_committer, "write_output", writing)


@dataclass
class PipelineRun:
    """One pipeline of a run, and what was seen of it."""

    executed: Executed
    pipeline: PipelineDef
    feed: FeedLog
    committed: int

    @property
    def handed_on(self) -> int:
        """The rows that Ring 0 handed to Spark."""
        instance, named = self.pipeline.instance, {sink.name for sink in self.pipeline.sinks}
        receipts = self.executed.reports.receipts[instance].items()
        fed = sum(staged.rows for sink, found in receipts if sink not in named for staged in found)
        return fed + sum(rows.rows for rows in self.executed.reports.staged[instance])

    @property
    def fed(self) -> bool:
        return self.feed.newest() is not None

    @property
    def lanes(self) -> bool:
        return any(lane.received for lane in self.executed.reports.lanes[self.pipeline.instance].values())

    @property
    def sinks(self) -> dict[str, set[str]]:
        """The sinks for which each part staged rows. Rings that stage for a sink of the user would be seen, too."""
        instance = self.pipeline.instance
        named = {sink.name for sink in self.pipeline.sinks}
        rings = set(self.executed.reports.receipts[instance]) & named
        query = self.executed.in_commits.get(instance, set()) | self.executed.in_batches.get(instance, set())
        return {"rings": rings, "query": query}


# How a run shows that it executed an operator.
EVIDENCE: dict[str, Callable[[PipelineRun], bool]] = {
    "PhysicalSharedStream": lambda run: run.executed.decoded == ROWS,
    "PhysicalFilter": lambda run: not run.lanes and 0 < run.handed_on < ROWS,
    "PhysicalProject": lambda run: not run.lanes and run.handed_on > 0,
    "PhysicalPartialAggregate": lambda run: run.lanes,
    "PhysicalBridge": lambda run: run.lanes,
    "PhysicalMergeAggregate": lambda run: run.lanes,
    "PhysicalSparkQuery": lambda run: run.pipeline.instance in run.executed.in_commits,
    "PhysicalFeed": lambda run: run.fed,
    "PhysicalDedicatedQuery": lambda run: run.pipeline.instance in run.executed.in_batches,
    "PhysicalSink": lambda run: any(run.sinks.values()),
    "PhysicalCommit": lambda run: run.committed > 0,
}


def explained(hub: Hub, name: str) -> list[dict[str, Any]]:
    (answer,) = hub.sql(f"EXPLAIN JSON PIPELINE {name}")
    operators: list[dict[str, Any]] = json.loads(answer.text)["physical"]
    return operators


def test_explain_prints_exactly_the_operators_that_execute_on_the_epoch_and_dedicated_hosts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, executed = spark.newSession(), Executed()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.udf.register("plus_one", lambda i: i + 1, "long")
    executed.watch(monkeypatch)
    lines = [f'{{"id": {i}, "k": "k{i % 2}", "ts": "2026-01-01T00:00:{i:02}Z"}}' for i in range(ROWS)]
    put(tmp_path / "in" / "0.json", lines)
    with headrace.connect(tmp_path / "state", spark=session, buckets=2) as hub:
        hub.sql(
            "CREATE STREAM s (id BIGINT, k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND) "
            f"WITH (source = 'files', format = 'json', path = '{tmp_path / 'in'}');"
            "CREATE SINK m WITH (type = 'memory');"
            + ";".join(
                f"CREATE PIPELINE {name} INTO m WITH (host = '{host}') AS {query}"
                for name, (host, query) in PIPELINES.items()
            )
        )
        directory = tmp_path / "state" / "streams" / "s"
        plans = {name: explained(hub, name) for name in PIPELINES}
        definitions = {name: hub.record(name).definition for name in PIPELINES}
        assert hub.wait_until_end(300)
        for name, definition in definitions.items():
            committed = hub.pipelines[name].status().rows_out
            run = PipelineRun(executed, definition, FeedLog(feed_directory(directory, definition.instance)), committed)
            shown = {operator for operator, shows in EVIDENCE.items() if shows(run)}
            assert {o["operator"] for o in plans[name]} == shown, name
            assert run.sinks == {"rings": set(), "query": {"m"}}, name
            assert {o["staged_by"] for o in plans[name] if o["operator"] == "PhysicalSink"} == {"query"}
