"""EXPLAIN against the runtime: a pipeline runs, and its messages, receipts and commits show which operators executed.

Everything runs but Spark itself (`tests.shared.mini`). A printed operator that nothing executes fails here, and so does
a part that executes without being printed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.bridge.messages import STREAM_LANE, MessageKind, Receipt, Row
from headrace.bridge.packs import unpack
from headrace.bridge.pools import bucket_of
from headrace.bridge.rows import decode_rows
from headrace.bridge.task_counts import decode_report
from headrace.exec.aggregates import schema_of
from headrace.model.definitions import PipelineDef
from headrace.sql.plan import physical
from headrace.sql.plan.physical import (
    Physical,
    PhysicalAggregate,
)
from tests.e2e.support import put
from tests.shared import mini as mini_spark
from tests.shared.mini import Mini

STREAM = (
    "CREATE STREAM s (id BIGINT, k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND) "
    "WITH (source = 'files', format = 'json', path = '{path}'); "
    "CREATE SINK out WITH (type = 'kept'); CREATE SINK copy WITH (type = 'kept')"
)
QUERIES = {
    "rows": ("out", "SELECT id, k FROM s"),
    "filtered_rows": ("out", "SELECT id FROM s WHERE id > 3"),
    "made_rows": ("out", "SELECT id, explode(array(id, 0)) AS e FROM s"),
    "made_groups": ("out", "SELECT e, count(*) AS n FROM s LATERAL VIEW explode(array(id, 0)) t AS e GROUP BY e"),
    "two_sinks": ("out, copy", "SELECT id FROM s WHERE id > 3"),
    "global": ("out", "SELECT count(*) AS n FROM s"),
    "groups": ("out", "SELECT k, count(*) AS n FROM s GROUP BY k"),
    "filtered_groups": ("out, copy", "SELECT k, sum(id) AS n FROM s WHERE id > 3 GROUP BY k"),
    "distinct": ("out", "SELECT DISTINCT k FROM s"),
    "window": ("out", "SELECT k, max(id) AS high FROM s WHERE id > 3 GROUP BY window(ts, '2 seconds'), k"),
    "window_changes": ("out", "SELECT max(id) AS high FROM s GROUP BY window(ts, '2 seconds') EMIT CHANGES"),
    "session": ("out", "SELECT k, count(*) AS n FROM s GROUP BY session_window(ts, '3 seconds'), k"),
}
ROWS = 12


@dataclass
class Observed:
    """What one pipeline did, over all epochs."""

    pipeline: PipelineDef
    from_tasks: list[Row] = field(default_factory=list)
    from_lanes: list[Row] = field(default_factory=list)
    committed: int = 0

    def to_pools(self, kind: MessageKind) -> list[Row]:
        return [m for m in self.from_tasks if bucket_of((m.instance, m.bucket)) is not None and m.kind == kind]

    @property
    def partials(self) -> list[bytes]:
        """The payloads with partial states for the lanes of this pipeline."""
        packs = [unpack(m.payload) for m in self.to_pools(MessageKind.EVENTS)]
        return [entry.payload for pack in packs for entry in pack if entry.lane == self.pipeline.lane]

    @property
    def decoded(self) -> int:
        return sum(decode_report(m.payload)[0].rows for m in self.from_tasks if m.kind == MessageKind.REPORT)

    @property
    def kept(self) -> int:
        """The rows that passed the filter: rows in the partial states, or rows that tasks staged for one sink."""
        if partials := self.partials:
            table = decode_rows(partials, schema_of(self.pipeline.program.ring0))
            return sum(count or 0 for count in table.column("p0").to_pylist())
        return self.staged(self.from_tasks)["out"]

    def staged(self, messages: list[Row]) -> dict[str, int]:
        """The rows that the sender of `messages` staged, by sink."""
        found: dict[str, int] = defaultdict(int)
        for receipt in (Receipt.decode(m.payload) for m in messages if m.kind == MessageKind.OUTPUT):
            if receipt.instance == self.pipeline.instance:
                found[receipt.sink] += receipt.staged.rows
        return found


# How a run shows that it executed an operator.
EVIDENCE: dict[str, Callable[[Observed], bool]] = {
    "PhysicalSharedStream": lambda run: run.decoded == ROWS,
    "PhysicalFilter": lambda run: run.kept < run.decoded,
    "PhysicalGenerate": lambda run: run.kept > run.decoded,
    "PhysicalProject": lambda run: bool(run.staged(run.from_tasks)),
    "PhysicalPartialAggregate": lambda run: bool(run.partials),
    "PhysicalBridge": lambda run: bool(run.to_pools(MessageKind.WATERMARK) and run.to_pools(MessageKind.BARRIER)),
    "PhysicalMergeAggregate": lambda run: any(m.kind == MessageKind.REPORT for m in run.from_lanes),
    "PhysicalSink": lambda run: bool(run.staged(run.from_tasks) or run.staged(run.from_lanes)),
    "PhysicalCommit": lambda run: run.committed > 0,
}


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql(STREAM.format(path=tmp_path / "in"))
    yield mini
    mini.hub.close()


def run(mini: Mini, patch: pytest.MonkeyPatch, sinks: str, query: str) -> Observed:
    """Creates the pipeline, feeds it ten rows within ten seconds and two that are much later, and runs every epoch."""
    mini.hub.sql(f"CREATE PIPELINE p INTO {sinks} AS {query}")
    seen = Observed(mini.hub.record("p").definition)
    lanes, advance = mini_spark._lanes, mini_spark._advance

    def watch_tasks(messages: list[Row]) -> Any:
        seen.from_tasks += messages
        return lanes(messages)

    def watch_lane(state: Any, lane: tuple[int, int], rows: list[Row]) -> list[Row]:
        sent = advance(state, lane, rows)
        if lane[0] != STREAM_LANE:
            seen.from_lanes += sent
        return sent

    patch.setattr(mini_spark, "_lanes", watch_tasks)
    patch.setattr(mini_spark, "_advance", watch_lane)
    for file, seconds in enumerate([range(10), [40], [59]]):
        lines = [f'{{"id": {i}, "k": "k{i % 2}", "ts": "2026-01-01T00:00:{i:02}Z"}}' for i in seconds]
        put(mini.directory.parent / "in" / f"{file}.json", lines)
        mini.drain()
    seen.committed = len(mini.output(seen.pipeline.instance))
    return seen


@pytest.mark.parametrize("name", QUERIES)
def test_explain_prints_exactly_the_operators_that_execute(
    mini: Mini, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seen = run(mini, monkeypatch, *QUERIES[name])
    (answer,) = mini.hub.sql("EXPLAIN JSON PIPELINE p")
    operators = json.loads(answer.text)["physical"]
    executed = {operator for operator, shows in EVIDENCE.items() if shows(seen)}
    assert {o["operator"] for o in operators} == executed
    staged = {"tasks": seen.staged(seen.from_tasks), "lanes": seen.staged(seen.from_lanes)}
    printed = {(o["staged_by"], o["sink"]) for o in operators if o["operator"] == "PhysicalSink"}
    assert printed == {(sender, sink) for sender, sinks in staged.items() for sink in sinks}


@pytest.mark.parametrize("name", QUERIES)
def test_explain_has_a_bridge_and_a_ring_1_only_when_messages_reach_lanes(
    mini: Mini, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seen = run(mini, monkeypatch, *QUERIES[name])
    (answer,) = mini.hub.sql("EXPLAIN PIPELINE p")
    for block in ("bridge (", "ring 1 ("):
        assert (f"\n{block}" in answer.text) == bool(seen.from_lanes), block


def test_every_operator_has_evidence() -> None:
    known = {
        name
        for name, kind in vars(physical).items()
        if isinstance(kind, type) and issubclass(kind, Physical) and name.startswith("Physical")
    }
    # tests/e2e/test_explain_of_hosts.py and tests/e2e/test_dedicated_life.py have the evidence for these.
    need_spark = {"PhysicalSparkQuery", "PhysicalFeed", "PhysicalBarrier", "PhysicalDedicatedQuery"}
    assert known - {Physical.__name__, PhysicalAggregate.__name__} - need_spark == EVIDENCE.keys()
