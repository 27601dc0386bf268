"""headrace as a user has it: `headrace.connect`, one stream, N pipelines. All settings are defaults."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import headrace
from bench.peers.worker import Mark, link, serve
from bench.peers.workloads import Workload
from headrace.hub.hub import Hub

LIMIT_SECONDS = 900.0


class Headrace:
    """A hub with one stream at a time."""

    def __init__(self) -> None:
        self._work = Path(tempfile.mkdtemp(prefix="headrace-peers-"))
        self._numbers = itertools.count()
        self._hub = headrace.connect(self._work / "first")
        self._spark = self._hub.spark  # starts Spark now, outside of what is measured

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("headrace", "pyspark", "duckdb", "pyarrow")}

    def check(self, workload: Workload, count: int, files: list[Path], out: Path) -> None:
        inbox = out.parent / f"{out.name}-in"
        link(inbox, files)
        with headrace.connect(self._work / f"check-{next(self._numbers)}", spark=self._spark) as hub:
            queries = workload.first(count)
            made = [declaration(workload, inbox)]
            for number, query in enumerate(queries):
                made.append(f"CREATE SINK o{number} WITH (type = 'parquet', path = '{out / str(number)}')")
                made.append(f"CREATE PIPELINE p{number} INTO o{number} AS {query.spark}")
            hub.sql(";".join(made))
            if not hub.wait_until_end(timeout=LIMIT_SECONDS):
                raise TimeoutError(f"not at the end after {LIMIT_SECONDS:g} s")
            failed = [p.status().error for p in hub.pipelines.values() if p.status().error]
            if failed:
                raise RuntimeError(failed[0])

    def time(
        self, workload: Workload, count: int, warm: list[Path], measured: list[Path], place: Path, mark: Mark
    ) -> float:
        inbox = place / "in"
        link(inbox, warm)
        with headrace.connect(self._work / f"time-{next(self._numbers)}", spark=self._spark) as hub:
            made = [declaration(workload, inbox), "CREATE SINK out WITH (type = 'noop')"]
            made += [f"CREATE PIPELINE p{i} INTO out AS {q.spark}" for i, q in enumerate(workload.first(count))]
            hub.sql(";".join(made))
            rows = sum(path.read_bytes().count(b"\n") for path in warm)
            wait_for(hub, rows)
            more = sum(path.read_bytes().count(b"\n") for path in measured)
            mark("begin")
            began = time.monotonic()
            link(inbox, measured)
            wait_for(hub, rows + more)
            seconds = time.monotonic() - began
            mark("end")
            broken = [name for name, p in hub.pipelines.items() if p.status().state != "running"]
            if broken:
                raise RuntimeError(f"these pipelines do not run: {broken}")
        return seconds

    def close(self) -> None:
        self._hub.close()
        shutil.rmtree(self._work, ignore_errors=True)


def wait_for(hub: Hub, rows: int) -> None:
    """Wait until the stream has committed `rows` rows."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while hub.streams["s"].status().rows < rows:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{hub.streams['s'].status().rows} of {rows} rows after {LIMIT_SECONDS:g} s")
        time.sleep(0.02)


def declaration(workload: Workload, inbox: Path) -> str:
    columns = ", ".join(f"`{name}` {kind}" for name, kind in workload.columns)
    return (
        f"CREATE STREAM s ({columns}, WATERMARK FOR {workload.time} AS {workload.time} - INTERVAL 1 SECOND) "
        f"WITH (source = 'files', format = 'json', path = '{inbox}')"
    )


if __name__ == "__main__":
    serve(Headrace)
