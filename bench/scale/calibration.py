"""Epochs of the workloads of bench-peers in one process without Spark: their CPU time by part, and what they counted.

Counts of groups come from the windows and keys of the queries, not from the run, so that a prediction needs no run.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import feed
from bench.in_process import LocalHub
from bench.peers.queries import Query, windowed
from bench.peers.run_headrace import declaration
from bench.peers.workloads import FEED_COLUMNS, Workload, different, one_family
from bench.scale.model import Load, Observation, distinct
from headrace.sources import files as file_source

CARDINALITY = {"region": 12, "level": 5, "ok": 2}
DELAY = 1.0  # seconds, of the watermark


def _wide(number: int) -> Query:
    columns = [f"x{n}" for n in range(12)]
    return windowed(
        f"p{number}",
        seconds=60,
        keys=(("user", "text"),),
        aggregates=tuple((f"top_{name}", f'max("{name}")', "decimal") for name in columns),
        where=f'"value" >= {number}',
        needs=("user", "value", *columns),
    )


# Workloads that differ in one thing only, so that the fit can tell costs apart: many columns in one family, many
# families on three columns, only stateless pipelines.
WIDE = Workload("wide", "one family, 15 columns", FEED_COLUMNS, "ts", 100, tuple(_wide(n) for n in range(2)))
FILTERS = Workload(
    "filters", "stateless pipelines", FEED_COLUMNS, "ts", 100, tuple(different(8 * n + 7) for n in range(6))
)
WINDOWS = Workload(
    "windows", "families on 3 columns", FEED_COLUMNS, "ts", 100, tuple(one_family(n, 5 + 5 * n) for n in range(12))
)


@dataclass(frozen=True, slots=True)
class Measured:
    """An observation, with the bytes over the bridge per partial row and the bytes of state per open group."""

    observation: Observation
    bridge_bytes: float
    state_bytes: float


def load_of(workload: Workload, queries: Sequence[Query], epoch: range, tasks: int, megabytes: float) -> Load:
    """The counts of an epoch that reads the rows with the numbers in `epoch`; rows come `feed.PER_SECOND` a second."""
    needed = {workload.time, *(name for query in queries for name in query.needs)}
    families = {query.family for query in queries if query.family is not None}
    partials = merged = closed = 0.0
    end = epoch[-1] - DELAY * feed.PER_SECOND  # windows that end later are still open after the epoch
    slices = [range(epoch[len(epoch) * t // tasks], epoch[-1] + 1) for t in range(tasks)]
    slices = [range(s.start, slices[t + 1].start if t + 1 < tasks else epoch[-1] + 1) for t, s in enumerate(slices)]
    for query in queries:
        if query.family is None:
            continue
        cells, width, share = 1.0, query.family.seconds * feed.PER_SECOND, kept(query)
        for key in query.family.keys:
            cells *= workload.keys if key == "user" else CARDINALITY[key]
        for rows in slices:
            for window, n in _by_window(rows, width):
                groups = distinct(n * share, cells)
                partials += groups
                whole = rows.start <= window.start and window.stop <= min(rows.stop, end)
                merged += 0.0 if whole else groups
        # A window closes in the epoch after the one that moved the watermark over its end; on average as many do.
        closed += len(epoch) / width * distinct(width * share, cells)
    stateless = sum(query.family is None for query in queries)
    doubles = sum(query.family is not None and 'sum("x' in query.duckdb for query in queries)
    return Load(
        len(epoch), megabytes, len(needed), tasks, len(queries), len(families), stateless, doubles, partials, merged,
        closed,
    )  # fmt: skip


def kept(query: Query) -> float:
    """The share of the rows that a query's filter keeps: filters compare a column below 1,000 with a number."""
    assert query.family is not None
    found = re.fullmatch(r'"(\w+)" >= (\d+)', query.family.where)
    assert found is not None
    return 1.0 if found[1] == "seq" else 1.0 - int(found[2]) / 1000


def _by_window(rows: range, width: int) -> list[tuple[range, int]]:
    """The windows that `rows` are in, as the rows that belong to each, and how many of `rows` do."""
    windows = [range(n * width, (n + 1) * width) for n in range(rows.start // width, (rows.stop - 1) // width + 1)]
    return [(window, min(rows.stop, window.stop) - max(rows.start, window.start)) for window in windows]


def observe(
    workload: Workload,
    count: int,
    rows: int,
    *,
    tasks: int = 2,
    warm: int = 3,
    measured: int = 4,
    cold: bool = False,
    one_machine: bool = True,
) -> Measured:
    """Run epochs of one file of `rows` rows with the first `count` queries. Means over the measured epochs. Without
    `one_machine` large packs of partial rows travel inside messages, as on a cluster."""
    queries = workload.first(count)
    file_source.SMALLEST_SPLIT = 1  # so that small input has as many tasks, too
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        work = Path(scratch)
        made = feed.write(work / "made", warm + measured, rows, workload.keys)
        (work / "in").mkdir()
        local = LocalHub(work / "state", tasks, one_machine)
        try:
            feed.give(work / "in", made[:1])
            pipelines = ";".join(f"CREATE PIPELINE p{i} INTO out AS {q.spark}" for i, q in enumerate(queries))
            stream = declaration(workload, work / "in")
            local.hub.sql(f"{stream}; CREATE SINK out WITH (type = 'noop'); {pipelines}")
            query = local.query
            query.cold = cold
            while query.step():
                pass
            for number, file in enumerate(made[1:], 1):
                if number == warm:
                    query.seconds.clear()
                    before, sent = query.bridge_bytes, _sent(local)
                feed.give(work / "in", [file])
                while not query.step():
                    pass
            failed = [name for name, p in local.hub.pipelines.items() if p.status().state != "running"]
            if failed:
                raise RuntimeError(f"these pipelines do not run: {failed}")
            seconds = {part: spent / measured for part, spent in query.seconds.items()}
            bridge = (query.bridge_bytes - before) / max(_sent(local) - sent, 1)
            statuses = [pipeline.status() for pipeline in local.hub.pipelines.values()]
            state = sum(s.state_bytes for s in statuses) / max(sum(s.groups for s in statuses), 1)
        finally:
            local.hub.close(drain=False)
        size = sum(file.stat().st_size for file in made[warm:]) / measured / 1e6
    epochs = [range(number * rows, (number + 1) * rows) for number in range(warm, warm + measured)]
    loads = [load_of(workload, queries, epoch, tasks, size) for epoch in epochs]
    average = Load(
        rows, size, loads[0].columns, tasks, count, loads[0].families, loads[0].stateless, loads[0].doubles,
        sum(load.partials for load in loads) / measured, sum(load.merged for load in loads) / measured,
        sum(load.closed for load in loads) / measured,
    )  # fmt: skip
    label = f"({workload.name}) N = {count}, {rows:,} rows, {tasks} tasks"
    return Measured(Observation(label, average, seconds), bridge, state)


def _sent(local: LocalHub) -> int:
    return sum(pipeline.status().sent.rows for pipeline in local.hub.pipelines.values())
