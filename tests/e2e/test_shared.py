"""Shared streams on Spark: many threads at once, one read and one decode, and a schedule with a restart in it."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace
from headrace.hub.hub import Hub
from headrace.spark.summary import EpochSummary
from headrace.stream.runtime import StreamRuntime
from tests.e2e.support import put, rows_of, until
from tests.shared.test_schedules import STREAM, as_lines, stream_rows
from tests.sql.execute import bag, plain, run_plan
from tests.sql.support import MEANING, plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

THREADS = 16
SECONDS = float(os.environ.get("HEADRACE_CHURN_SECONDS", "3"))  # a minute in `make soak-churn`
COLUMNS = ("a", "b", "c", "d")


def declare(hub: Hub, inputs: Path, **options: str) -> None:
    more = "".join(f", {k} = '{v}'" for k, v in options.items())
    columns = ", ".join(f"{c} STRING" for c in COLUMNS)
    hub.sql(
        f"CREATE STREAM s (id BIGINT, {columns}) WITH (source = 'files', format = 'json', path = '{inputs}'{more}); "
        "CREATE SINK m WITH (type = 'memory', max_rows = '1000000')"
    )


def lines(low: int, high: int) -> list[str]:
    cells = "".join(f', "{c}": "{c}{{i}}"' for c in COLUMNS)
    return [f'{{"id": {i}{cells.replace("{i}", str(i))}}}' for i in range(low, high)]


class Feeder:
    """Puts a small file every tenth of a second until it is stopped."""

    def __init__(self, inputs: Path) -> None:
        self.inputs, self.rows, self._stop = inputs, 0, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            put(self.inputs / f"{self.rows:08}.json", lines(self.rows, self.rows + 7))
            self.rows += 7

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *given: object) -> None:
        self._stop.set()
        self._thread.join()


def churn(hub: Hub, number: int, deadline: float, problems: list[str], made: Counter[str]) -> None:
    """Create a pipeline, check its rows, drop it; repeat. Values must belong to their row; no row may be missing."""
    column, turn = COLUMNS[number % len(COLUMNS)], 0
    name = f"p{number}"
    try:
        while time.monotonic() < deadline:
            turn += 1
            hub.sql(f"CREATE PIPELINE {name} INTO m AS SELECT id, {column} FROM s")
            assert hub.pipelines[name].status().state == "running", "CREATE PIPELINE returns when it runs"
            assert column in hub.streams["s"].status().decoding_columns
            if turn % 2:
                hub.sql(f"CREATE OR REPLACE PIPELINE {name} INTO m AS SELECT id, {column}, id + 1 AS next FROM s")
            time.sleep(0.2)
            rows = rows_of(hub.pipelines[name].results())
            problems += [f"{name}: {row}" for row in rows if row[1] != f"{column}{row[0]}"][:1]
            ids = sorted(row[0] for row in rows)
            if ids and ids != list(range(ids[0], ids[-1] + 1)):
                problems.append(f"{name}: rows {ids[0]} to {ids[-1]} are {len(ids)}")
            hub.sql(f"DROP PIPELINE {name}")
            made[name] += 1
    except Exception as problem:
        problems.append(f"{name}: {type(problem).__name__} {problem}")


def test_sixteen_threads_create_and_drop_pipelines_at_once(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in").mkdir()
    problems: list[str] = []
    made: Counter[str] = Counter()
    with headrace.connect(tmp_path / "state", spark=spark) as hub:
        declare(hub, tmp_path / "in")
        hub.sql("CREATE PIPELINE base INTO m AS SELECT id FROM s")
        query = hub.runtime("s").supervisor.query
        with Feeder(tmp_path / "in") as feeder:
            deadline = time.monotonic() + SECONDS
            threads = [threading.Thread(target=churn, args=(hub, n, deadline, problems, made)) for n in range(THREADS)]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                states = {row["state"] for row in hub.sql("SHOW PIPELINES")[0].table.to_pylist()}  # type: ignore[union-attr]
                problems += [f"half-registered: {states}"] if not states <= {"starting", "running"} else []
                time.sleep(0.1)
        assert problems == []
        assert len(made) == THREADS
        assert hub.runtime("s").supervisor.query is query, "joining and leaving restarts nothing"
        assert list(hub.pipelines) == ["base"]
        until(lambda: hub.streams["s"].status().decoding_columns == ["id"], "the projection shrinks")
        assert hub.wait_until_end(60)
        assert sorted(rows_of(hub.pipelines["base"].results())) == [(i,) for i in range(feeder.rows)]
        assert set(hub.runtime("s").progress.pipelines) == {str(hub.record("base").definition.instance)}


def workers(spark: Any) -> set[int]:
    """The live processes below Spark's JVM, or forked for it from the worker server, which is below us."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it ended meanwhile
                continue
    jvm = int(spark.sparkContext._gateway.proc.pid)
    found = {jvm, *(p for p in parents if parents[p] == os.getpid() and b"spark.worker_server" in _command(p))}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {jvm}


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it ended meanwhile
        return b""


def read_by(pids: set[int]) -> dict[int, int]:
    """Bytes that each process has read from files so far."""
    found = {}
    for pid in pids:
        try:
            facts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        except OSError:
            continue
        found[pid] = int(facts["rchar"])
    return found


def test_one_read_and_one_decode_however_many_pipelines(tmp_path: Path, spark: SparkSession) -> None:
    block = lines(0, 200_000)
    put(tmp_path / "in" / "0.json", lines(0, 100))
    seen: dict[int, tuple[int, int, int]] = {}
    with headrace.connect(tmp_path / "state", spark=spark) as hub:
        declare(hub, tmp_path / "in")
        for count in (1, 8):
            missing = range(len(hub.pipelines), count)
            query = "SELECT count(a) AS n, max(b) AS b, max(id) + {i} AS high FROM s"
            script = ";".join(f"CREATE PIPELINE p{i} INTO m AS {query.format(i=i)}" for i in missing)
            hub.sql(script)
            until(lambda: hub.runtime("s").recent and not hub.streams["s"].status().lag_bytes, "the stream is idle")
            before, known = read_by(workers(spark)), len(hub.runtime("s").recent)
            rows = hub.streams["s"].status().rows
            size = put(tmp_path / "in" / f"{count}.json", block).stat().st_size
            until(lambda rows=rows: hub.streams["s"].status().rows == rows + len(block), "read")  # type: ignore[misc]
            after = read_by(workers(spark))
            epochs = hub.runtime("s").recent[known:]
            assert sum(e.bytes for e in epochs) == size
            values = sum(e.values for e in epochs)
            seen[count] = size, sum(after.values()) - sum(before.get(p, 0) for p in after), values
    for size, read, values in seen.values():
        assert values == 3 * len(block)  # id, a, b of five columns
        assert size <= read < 1.5 * size, "the input, and little else: a second reading would show"


@pytest.fixture
def epochs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, set[int], int]]]:
    """Every committed epoch: its number, the instances in its plan, its rows."""
    found: list[tuple[int, set[int], int]] = []
    done = StreamRuntime.epoch_committed

    def noted(self: StreamRuntime, summary: EpochSummary) -> None:
        instances = {p.instance for p in self.plans.load(summary.plan).pipelines}
        if not found or found[-1][0] < summary.epoch:
            found.append((summary.epoch, instances, summary.rows))
        done(self, summary)

    monkeypatch.setattr(StreamRuntime, "epoch_committed", noted)
    yield found


QUERIES = (
    "SELECT id AS c0, upper(k) AS c1, price + 1 AS c2 FROM s WHERE ok IS NOT NULL",
    "SELECT window.start AS w, k AS k0, count(*) AS a0, sum(n) AS a1 FROM s GROUP BY window(ts, '5 minutes'), k",
    "SELECT window.start AS w, count(*) AS a0, max(temp) AS a1 FROM s WHERE id > 0 "
    "GROUP BY window(ts, '10 minutes', '4 minutes')",
    "SELECT day AS c0, pos.lat AS c1 FROM s WHERE temp > 0 OR k = 'a'",
)


def test_a_schedule_with_a_restart_gives_every_pipeline_the_rows_of_its_epochs(
    tmp_path: Path, spark: SparkSession, epochs: list[tuple[int, set[int], int]]
) -> None:
    rows, inputs, fed = stream_rows(0), tmp_path / "in", 0
    text, instances = as_lines(rows), dict[int, tuple[str, Path]]()
    inputs.mkdir()
    hub = headrace.connect(tmp_path / "state", spark=spark, buckets=2)
    hub.sql(STREAM.replace("source = 'generator'", f"source = 'files', path = '{inputs}'"))

    def feed(count: int) -> None:
        nonlocal fed
        put(inputs / f"{fed:03}.json", text[fed : fed + count])
        fed += count

    def create(number: int, verb: str = "CREATE") -> None:
        path = tmp_path / f"out{len(instances)}"
        name = f"o{len(instances)}"
        hub.sql(
            f"CREATE SINK {name} WITH (type = 'parquet', path = '{path}');"
            f"{verb} PIPELINE p{number} INTO {name} AS {QUERIES[number]}"
        )
        instances[hub.record(f"p{number}").definition.instance] = (QUERIES[number], path)

    create(0)
    feed(10)
    create(1)
    feed(10)
    hub.sql("STOP PIPELINE p0")
    create(2)
    feed(7)
    create(3)
    hub.sql("START PIPELINE p0")
    feed(8)
    hub.close(drain=False)  # wherever it is
    hub = headrace.connect(tmp_path / "state", spark=spark, buckets=2)
    create(3, "CREATE OR REPLACE")  # another sink: a new instance in the same plan version
    feed(len(text) - fed)
    assert hub.wait_until_end(90)
    hub.close()
    assert sum(count for _, _, count in epochs) == len(text)
    starts = [sum(count for _, _, count in epochs[:i]) for i in range(len(epochs))]
    for instance, (query, path) in instances.items():
        parts = [rows.slice(at, n) for at, (_, who, n) in zip(starts, epochs, strict=True) if instance in who]
        wanted = run_plan(plan(query).bound, pa.concat_tables([rows.slice(0, 0), *parts]), MEANING)
        found = pq.read_table(path).to_pylist() if path.exists() else []
        assert bag([tuple(plain(v) for v in row.values()) for row in found]) == bag(wanted), query
