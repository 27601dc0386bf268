"""What crossing from Ring 0 to Ring 1 costs: payloads of three fixed-width columns, watermarks, the backpressure check.

Built and handed over: partials become payloads, payloads become the Arrow batch that Spark takes. Read: from the
payloads of a lane to the one table that Ring 1 folds, as many as are handed over together; beside it, one payload
alone, whose cost is that of the call.
Processor time of this one process, the best of many repeats, after as many that do not count.

Beside it, Spark's own transport: the same rows through one shuffle from Python to Python, once as rows of Spark and
once as payloads, wall time of the whole job.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench import feed
from bench.report import Report, environment, main
from bench.streaming import session
from headrace.bridge.messages import (
    BATCH_BYTES,
    BATCH_MESSAGES,
    SPARK_DDL,
    LaneEpoch,
    MessageKind,
    Row,
    batches,
    in_order,
    to_batch,
)
from headrace.bridge.rows import decode_rows, payloads
from headrace.hub.draft import Draft
from headrace.ingress.backpressure import Backpressure, Limits
from headrace.model.codec import dump
from headrace.model.program import Meaning
from headrace.ring1.lane_run import watermark_after
from headrace.spark.session import Engine
from headrace.spark.worker_memory import keep_freed_memory
from headrace.sql import parse_script
from headrace.state.catalog import Catalog

QUICK = "--quick" in sys.argv
SIZES = (1024, 65_536)
LANES = 32
REPEATS = 20 if QUICK else 100
PIPELINE = (
    "CREATE PIPELINE p INTO o AS SELECT window.start, user, count(*) AS n, sum(value) AS total FROM s "
    "WHERE value > 3 GROUP BY window(ts, '1 minute'), user"
)
EVENTS = (1 << 18) if QUICK else (1 << 21)


def best(work: Callable[[], object], times: int) -> float:
    """Seconds of processor time of one call."""
    found = []
    for turn in range(2 * REPEATS):
        began = time.process_time_ns()
        for _ in range(times):
            work()
        if turn >= REPEATS:
            found.append((time.process_time_ns() - began) / times)
    return min(found) / 1e9


def partials(rows: int) -> pa.Table:
    """Three fixed-width columns."""
    numbers = pa.array(np.arange(rows))
    return pa.table({"window_start": numbers, "k0": numbers, "p0": pa.array(np.random.default_rng(1).random(rows))})


def hand_over(table: pa.Table) -> list[pa.RecordBatch]:
    """What a task does with the partials of its lanes: as many payloads at a time as it hands over together."""
    lanes = max(1, min(BATCH_MESSAGES, BATCH_BYTES // table.nbytes))
    rows = ([Row(1, lane, 0, lane, int(MessageKind.EVENTS), p) for p in payloads(table)] for lane in range(lanes))
    return list(batches(rows))


def watermark() -> Callable[[], object]:
    """Watermarks on their way to 32 lanes: said by two tasks (the first also says what a lane is), carried, read."""
    draft = Draft(Catalog(), Meaning(), 2)
    for statement in parse_script(f"{feed.declaration(Path('/tmp'))};CREATE SINK o WITH (type = 'memory');{PIPELINE}"):
        draft.apply(statement)
    text = dump(draft.catalog.running("s")[0])

    def said(lane: int, task: int) -> Row:
        message = LaneEpoch(7, 2, "c" * 32, 10**15, 10**15 + task, 10**6, "" if task else text).encode()
        return Row(1, lane, task, 1, int(MessageKind.WATERMARK), message)

    def epoch() -> int:
        tasks = [[said(lane, task) for lane in range(LANES)] for task in range(2)]
        carried = [batch for rows in tasks for batch in batches([rows])]
        ordered = [in_order(lane) for lane in zip(*tasks, strict=True)]
        found = [watermark_after({m.task: LaneEpoch.decode(m.payload) for m in lane}) for lane in ordered]
        return len(carried) + len(found)

    return epoch


def check(pressure: Backpressure) -> float:
    """Nanoseconds of the question whether a source may be polled, the loop around it included."""

    def ask() -> None:
        for _ in range(10_000):
            if not pressure.open:
                raise AssertionError

    return best(ask, 10) / 10_000 * 1e9


def as_rows(size: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task that makes events and gives them to Spark as rows."""

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (batch,) = partials(size).to_batches()
        for given in batches:
            for _ in range(given.num_rows):
                yield batch

    return make


def as_payloads(size: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task that makes events and sends them as payloads."""

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = partials(size)
        for given in batches:
            for _ in range(given.num_rows):
                yield to_batch([Row(1, 0, 0, 1, int(MessageKind.EVENTS), payload) for payload in payloads(table)])

    return make


def count_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield _counted(sum(batch.num_rows for batch in batches))


def count_payloads(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = partials(1).schema
    for batch in batches:
        sent: list[Any] = batch.column("payload").to_pylist()
        yield _counted(decode_rows(sent, schema).num_rows)


def _counted(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array([rows], pa.int64())})


def transport(engine: Engine, size: int) -> dict[str, float]:
    """Nanoseconds of wall time an event through one shuffle; the better of three runs after one that does not count."""
    spark, found = engine.spark, {}
    three = "window_start BIGINT, k0 BIGINT, p0 DOUBLE"
    for name, make, schema, count in (
        ("rows", as_rows(size), three, count_rows),
        ("payloads", as_payloads(size), SPARK_DDL, count_payloads),
    ):
        events = spark.range(0, EVENTS // size, 1, engine.cores).mapInArrow(make, schema)
        job = events.repartition(engine.cores).mapInArrow(count, "n BIGINT")
        times = []
        for _ in range(4):
            began = time.monotonic()
            assert sum(r[0] for r in job.collect()) == EVENTS
            times.append(time.monotonic() - began)
        found[name] = min(times[1:]) / EVENTS * 1e9
    return found


def measure(say: Callable[[str], None]) -> Report:
    report = Report(facts=environment("pyspark", "pyarrow"))
    keep_freed_memory()  # as every worker does
    for size in SIZES:
        table = partials(size)
        times = max(1, 4096 // size)
        lanes = sum(batch.num_rows for batch in hand_over(table))
        built = best(partial(hand_over, table), times) / (lanes * size) * 1e9
        (payload,) = payloads(table)
        lane = [bytes(bytearray(payload)) for _ in range(max(1, BATCH_MESSAGES * SIZES[0] // size))]
        read = best(partial(decode_rows, lane, table.schema), 10) / len(lane) * 1e6
        alone = best(partial(decode_rows, [payload], table.schema), 10) * 1e6
        say(
            f"  {size:,} rows a payload: built and handed over {built:.1f} ns an event, read {read:.2f} us a payload "
            f"of {len(lane)}, {alone:.2f} us alone"
        )
        report.require(f"bridge_build_{size}_rows_ns_per_event", built, 30.0, "at most", " ns")
        report.facts[f"read_us_per_payload_of_{size}"] = round(read, 2)
        report.facts[f"read_us_of_one_payload_of_{size}"] = round(alone, 2)
        report.require(f"bridge_read_{size}_rows_us_per_1024_rows", read / (size / 1024), 1.0, "at most", " us")
    report.require("backpressure_check_ns", check(Backpressure(Limits("pause", 1 << 20))), 100.0, "at most", " ns")
    report.require("watermark_us_per_lane_and_epoch", best(watermark(), 2) / LANES * 1e6, 50.0, "at most", " us")
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        engine = session(Path(scratch))
        try:
            for size in SIZES:
                found = transport(engine, size)
                say(
                    f"  through one shuffle of Spark, {size:,} rows a batch: {found['rows']:.0f} ns an event as rows, "
                    f"{found['payloads']:.0f} ns as payloads"
                )
                report.facts[f"shuffle_ns_per_event_{size}"] = {name: round(ns, 1) for name, ns in found.items()}
        finally:
            engine.stop()
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
