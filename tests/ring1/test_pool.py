"""The lanes of a pool run together and fail alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.bridge.kernels import folds
from headrace.bridge.messages import MessageKind, Receipt, Row, decode
from headrace.bridge.pools import POOL, SPREAD_POOL, bucket_of
from headrace.bridge.reports import Failure, LaneReport, PoolReport
from headrace.errors import MissingInput
from headrace.model.definitions import PipelineDef
from headrace.model.plan_version import PipelineExit
from headrace.model.program import Expression, Window
from headrace.model.schema import INT
from headrace.ring1.lane_run import run_lane, run_pool
from headrace.ring1.packed import PackedStore
from headrace.ring1.pool_store import PoolStore
from headrace.sinks.in_process import unpack
from tests.ring0.tasks import WORD, N, at, counting, lines, task
from tests.ring1.memory_store import MemoryStore

TEN = Window("tumble", 10_000_000, 10_000_000)
FIVE = Window("hop", 10_000_000, 5_000_000)
BUCKETS = 2


def pipelines(pooled: bool) -> list[PipelineDef]:
    """Two alike, one with other windows, one that emits changes."""
    made = [
        counting(1, WORD, window=TEN, buckets=BUCKETS),
        counting(2, WORD, window=TEN, where="c1 > 1", buckets=BUCKETS),
        counting(3, N, window=FIVE, buckets=BUCKETS),
        counting(4, WORD, buckets=BUCKETS),
    ]
    return [replace(p, pooled=pooled) for p in made]


class Epochs:
    """Runs epochs of two tasks through the lanes, and keeps what the driver gets."""

    def __init__(self) -> None:
        self.stores: dict[tuple[int, int], MemoryStore] = {}
        self.rows: dict[int, list[str]] = {}
        self.reports: dict[tuple[int, int], LaneReport] = {}
        self.failures: dict[int, str] = {}
        self.watermark: int | None = None

    def run(self, given: list[PipelineDef], first: int, leaving: tuple[PipelineExit, ...] = ()) -> None:
        messages: list[Row] = []
        for number in range(2):
            seconds = range(first + number, first + 12, 2)
            chunk = lines(*({"word": f"w{i % 5}", "n": i % 3, "ts": at(i)} for i in seconds))
            sent = task(given, chunk, number=number, tasks=2, watermark=self.watermark, leaving=leaving)
            messages += sent.messages
        for row in self.through(messages):
            self._take(row)

    def through(self, messages: list[Row]) -> list[Row]:
        out: list[Row] = []
        for lane, bucket in sorted({(m.instance, m.bucket) for m in messages if m.instance}):
            store = self.stores.setdefault((lane, bucket), MemoryStore())
            mine = [m for m in messages if (m.instance, m.bucket) == (lane, bucket)]
            mine.sort(key=lambda r: (r.kind, r.task, r.seq))
            pooled = bucket_of((lane, bucket))
            if pooled is not None:
                found = run_pool(pooled, mine, store, ())
                assert {(r.instance, r.bucket) for r in found if r.kind == MessageKind.REPORT} == {(lane, bucket)}
                out += found
            else:
                out += run_lane(lane, bucket, mine, PackedStore(store), ())
        return out

    def _take(self, row: Row) -> None:
        if row.kind == MessageKind.OUTPUT:
            receipt = Receipt.decode(row.payload)
            self.rows.setdefault(receipt.instance, []).extend(map(repr, unpack(receipt.staged.data).to_pylist()))
        elif row.kind == MessageKind.ERROR:
            failure = decode(Failure, row.payload)
            self.failures[failure.instance] = failure.reason
        else:
            found = decode(PoolReport, row.payload).each()
            self.reports |= {(r.instance, r.bucket): r._replace(ms=0.0, bytes=0) for r in found}

    def sorted(self) -> dict[int, list[str]]:
        return {instance: sorted(rows) for instance, rows in self.rows.items()}


def facts(epochs: Epochs) -> dict[tuple[int, int], tuple[int, int, int]]:
    return {key: (r.late, r.closed, r.rows) for key, r in epochs.reports.items()}


def test_pooled_lanes_do_what_lanes_of_their_own_do() -> None:
    pooled, single = Epochs(), Epochs()
    for first in range(0, 120, 6):
        for epochs, given in ((pooled, pipelines(True)), (single, pipelines(False))):
            epochs.run(given, first)
        assert facts(pooled) == facts(single)
    ends = tuple(PipelineExit(p, flush=True) for p in pipelines(True))
    pooled.run([], 130, leaving=ends)
    single.run([], 130, leaving=tuple(replace(e, pipeline=replace(e.pipeline, pooled=False)) for e in ends))
    assert pooled.sorted() == single.sorted() and len(pooled.rows) == 4
    assert not pooled.failures and {lane for lane, _ in pooled.stores} == {POOL}
    assert not any(store.blobs for store in pooled.stores.values())  # all have left


def test_pools_of_earlier_releases_and_spread_ones_are_apart_and_do_the_same() -> None:
    """The two kinds have keys of their own, so a lane finds the state that it wrote."""
    mixed, alike = Epochs(), Epochs()
    both = [replace(p, spread=p.instance % 2 == 0) for p in pipelines(True)]
    for first in range(0, 120, 6):
        mixed.run(both, first)
        alike.run(pipelines(True), first)
        assert facts(mixed) == facts(alike)
    mixed.run([], 130, leaving=tuple(PipelineExit(p, flush=True) for p in both))
    alike.run([], 130, leaving=tuple(PipelineExit(p, flush=True) for p in pipelines(True)))
    assert mixed.sorted() == alike.sorted() and len(mixed.rows) == 4
    assert {lane for lane, _ in mixed.stores} == {POOL, SPREAD_POOL}
    assert {bucket_of(key) for key in mixed.stores} == set(range(BUCKETS))


@pytest.mark.parametrize("other", [None, "p0 + 1"], ids=["alike until it fails", "different"])
def test_a_lane_that_fails_leaves_the_others_and_its_own_state_as_they_were(other: str | None) -> None:
    good = replace(counting(1, WORD, window=TEN, buckets=1), pooled=True)
    ring1 = good.program.ring1
    assert ring1 is not None
    sql = "CAST('x' || k0 AS INTEGER)"
    failing = (ring1.outputs[0], Expression("bad", INT, sql))
    outputs = failing if other is None else (*failing, Expression("more", INT, other))
    bad = replace(good, name="bad", instance=2, program=replace(good.program, ring1=replace(ring1, outputs=outputs)))
    also = replace(good, name="also", instance=3)
    epochs = Epochs()
    epochs.run([good, bad, also], 0)
    before = _lane(epochs, 2)
    epochs.run([good, bad, also], 10)
    assert set(epochs.failures) == {2} and "EVALUATION_FAILED" in epochs.failures[2]
    assert epochs.sorted()[1] == epochs.sorted()[3] and 2 not in epochs.rows
    assert _lane(epochs, 2) == before
    epochs.run([good, also], 20, leaving=(PipelineExit(bad, flush=False),))
    assert _lane(epochs, 2) is None and _lane(epochs, 1) is not None


def _lane(epochs: Epochs, lane: int) -> bytes | None:
    pool = PoolStore(epochs.stores[POOL, 0])
    pool.load()
    return pool.lane(lane).header()


@pytest.mark.parametrize("epochs", [1, 2, 9])
def test_state_of_earlier_releases_has_the_bounds_of_windows_in_every_row(
    epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments of both forms are appended, merged and closed together."""
    long = replace(counting(5, WORD, window=Window("tumble", 60_000_000, 60_000_000), buckets=BUCKETS), pooled=True)
    given = [*pipelines(pooled=True), long]
    wanted, found = Epochs(), Epochs()
    measure: Any = folds.measure_shares
    write: Any = folds.write_shares
    for number in range(20):
        wanted.run(given, 6 * number)
        with monkeypatch.context() as patch:
            if number < epochs:
                patch.setattr(folds, "measure_shares", lambda bounds, _, *more: measure(bounds, False, *more))
                patch.setattr(folds, "write_shares", lambda *a: write(*a[:4], False, *a[5:]))
            found.run(given, 6 * number)
        wanted.watermark = found.watermark = (6 * number - 5) * 1_000_000
    assert found.sorted() == wanted.sorted()
    assert facts(found) == facts(wanted)
    assert {1, 2, 5} <= set(found.rows)


def test_a_stopped_pipeline_finds_its_state_when_it_comes_back() -> None:
    one, two = (replace(counting(i, WORD, window=TEN, buckets=1), pooled=True) for i in (1, 2))
    apart, always = Epochs(), Epochs()
    apart.run([one, two], 0)
    always.run([one, two], 0)
    apart.run([one], 6, leaving=(PipelineExit(two, flush=False, drop=False),))
    apart.run([one, two], 30)
    always.run([one, two], 30)
    assert sorted(apart.rows[2])[:5] == sorted(always.rows[2])[:5] and apart.rows[2]


@pytest.mark.parametrize("kind", [MessageKind.WATERMARK, MessageKind.BARRIER])
def test_a_pool_names_the_task_that_is_missing(kind: MessageKind) -> None:
    given = pipelines(True)
    messages = [m for n in range(3) for m in task(given, number=n, tasks=3).messages if m.instance == POOL]
    kept = [m for m in messages if m.bucket == 1 and not (m.task == 2 and m.kind == kind)]
    with pytest.raises(MissingInput) as caught:
        run_pool(1, sorted(kept, key=lambda r: (r.kind, r.task, r.seq)), MemoryStore(), ())
    assert (caught.value.params["where"], caught.value.params["missing"]) == ("pool 1", ["task 2"])


def test_a_failure_of_the_store_is_no_failure_of_a_pipeline() -> None:
    class Broken(MemoryStore):
        def header(self) -> bytes | None:
            raise EOFError

    given = pipelines(True)
    messages = [m for m in task(given, number=0, tasks=1).messages if m.instance == POOL and m.bucket == 0]
    with pytest.raises(EOFError):
        run_pool(0, sorted(messages, key=lambda r: (r.kind, r.task, r.seq)), Broken(), (EOFError,))


def test_an_end_reaches_only_its_own_lane() -> None:
    given = [replace(counting(i, WORD, window=TEN, buckets=1), pooled=True) for i in (1, 2)]
    epochs = Epochs()
    epochs.run(given, 0)
    epochs.run(given[:1], 6, leaving=(PipelineExit(given[1], flush=True),))
    assert set(epochs.rows) == {2} and _lane(epochs, 2) is None
    assert epochs.reports[2, 0].closed > 0 and _lane(epochs, 1) is not None
