"""Work that the pipelines of one task share: equal filters, and the projection, which is built once per worker."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.bridge.reports import PlannedEpoch
from headrace.exec import duck
from headrace.model.codec import dump, pack
from headrace.model.definitions import PipelineDef
from headrace.model.plan_version import PlanVersion
from headrace.model.program import Meaning, Window
from headrace.model.schema import View
from headrace.ring0 import projection
from headrace.ring0.projection import Projection
from headrace.spark.epochs import EpochPartition, read_partition
from headrace.state.plans import parse_plan, unpack_plan
from tests.ring0.tasks import SECOND, WORD, Chunks, N, X, at, counting, lines, stateless, stream, task

TUMBLE = Window("tumble", 10 * SECOND, 10 * SECOND)
RECORDS = lines(*({"word": f"w{i % 3}", "n": i, "x": i / 2, "ts": at(i)} for i in range(40)))
SAME = "c1 % 2 = 0"
PIPELINES = [
    stateless(1, WORD, where=SAME, view=View.some([WORD, N])),
    stateless(2, X, where=SAME, view=View.some([X, N])),
    counting(3, WORD, window=TUMBLE, where=SAME, view=View.some([WORD, N])),
    counting(4, WORD, window=TUMBLE, where="c1 > 3", view=View.some([WORD, N])),
    counting(5, None, where=SAME, view=View.some([N])),
    stateless(6, N),
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All SQL that runs."""
    texts: list[str] = []
    run = duck.run

    def noted(meaning: Meaning, sql: str, relations: Any) -> pa.Table:
        texts.append(sql)
        return run(meaning, sql, relations)

    monkeypatch.setattr(duck, "run", noted)
    return texts


def test_a_filter_that_several_passes_have_is_evaluated_once(asked: list[str]) -> None:
    task(PIPELINES, RECORDS)
    assert sum(SAME in sql for sql in asked) == 1
    assert sum("c1 > 3" in sql for sql in asked) == 1


def test_one_statement_filters_for_all_pipelines_that_only_select_columns(asked: list[str]) -> None:
    """One of them keeps no row, and one has no filter."""
    filters = ["c1 > 30", "c1 % 3 = 1", "c1 > 1000", None, "c2 IS NULL OR c2 > 15"]
    pipelines = [stateless(i + 1, WORD, N, X, where=text) for i, text in enumerate(filters)]
    together = task(pipelines, RECORDS)
    assert sum("FROM rows" in sql for sql in asked) == 1
    alone = [task([pipeline], RECORDS).of(pipeline) for pipeline in pipelines]
    assert [together.of(pipeline) for pipeline in pipelines] == alone


def test_a_filter_that_fails_stops_only_its_own_pipeline() -> None:
    pipelines = [stateless(1, WORD, where="c1 > 30"), stateless(2, WORD, where="error('no') IS NULL")]
    together = task(pipelines, RECORDS)
    assert together.of(pipelines[0]) == task([pipelines[0]], RECORDS).of(pipelines[0])
    assert list(together.errors) == [2]


def test_the_messages_of_a_pipeline_do_not_depend_on_others_with_the_same_filter() -> None:
    together = task(PIPELINES, RECORDS)
    for pipeline in PIPELINES:
        assert together.of(pipeline) == task([pipeline], RECORDS).of(pipeline)
    assert not together.errors


def test_a_shared_filter_that_fails_fails_only_the_pipelines_that_have_it(asked: list[str]) -> None:
    bad = "CAST(c0 AS INTEGER) > 0"
    fine = [stateless(1, WORD), counting(2, WORD, window=TUMBLE)]
    guilty = [stateless(8, WORD, where=bad), counting(9, WORD, where=bad)]
    sent = task([*fine, *guilty], RECORDS)
    assert set(sent.errors) == {8, 9}
    for pipeline in fine:
        assert sent.of(pipeline) == task([pipeline], RECORDS).of(pipeline)


def run_epoch(plan: PlanVersion, epoch: int, task_number: int = 0) -> None:
    packed = pack(dump(plan))  # another object, as a worker gets it
    part = EpochPartition(packed, Chunks((RECORDS,)), task_number, PlannedEpoch(epoch, 2, "checkpoint"))
    assert list(read_partition(part))


def test_a_projection_version_is_built_once_per_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    build = Projection.build

    def noted(plan: PlanVersion) -> Projection:
        built.append(plan.version)
        return build(plan)

    monkeypatch.setattr(Projection, "build", noted)
    projection.projection_of.clear()
    unpack_plan.cache_clear()
    first, second = (PlanVersion(version, stream(), tuple(PIPELINES[: version + 1])) for version in (1, 2))
    for epoch in range(4):
        run_epoch(first, epoch, 0)
        run_epoch(first, epoch, 1)
    assert built == [1]
    run_epoch(second, 4)
    run_epoch(first, 4)  # a re-run of an older epoch finds it still there
    assert built == [1, 2]


def test_a_worker_keeps_only_the_newest_projections(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in range(1, 3 * projection.KEPT):
        run_epoch(PlanVersion(version, stream(), (PIPELINES[5],)), version)
    assert len(projection.projection_of) <= projection.KEPT


def test_a_changed_union_recompiles_no_program() -> None:
    """A program does not depend on the other pipelines, because columns are indexes of the full schema."""
    alone: PipelineDef = PIPELINES[0]
    narrow = PlanVersion(1, stream(), (alone,))
    wide = PlanVersion(2, stream(), (alone, stateless(7, WORD, N, X)))
    assert narrow.view != wide.view
    assert dump(parse_plan(dump(narrow)).pipelines[0]) == dump(parse_plan(dump(wide)).pipelines[0])
