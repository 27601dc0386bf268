"""Flink: one STATEMENT SET with an INSERT for each query, so that its optimizer can share the source among them.

Object reuse is on, managed memory is raised, parallelism is the number of cores, and there are no checkpoints: what
Flink is fastest with. The input is bounded, so a job ends by itself. A job costs about a second before its first row;
the harness measures that with an empty input and takes it off. The first job of the process warms the JVM up.
"""

from __future__ import annotations

import itertools
import os
import time
from importlib.metadata import version
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableDescriptor, TableEnvironment

from bench.peers.queries import Kind, Query
from bench.peers.worker import Mark, link, serve
from bench.peers.workloads import Workload

TYPES = {"TIMESTAMP": "TIMESTAMP_LTZ(3)"}
OUTPUT: dict[Kind, str] = {
    "time": "TIMESTAMP(3)",
    "text": "STRING",
    "flag": "BOOLEAN",
    "whole": "BIGINT",
    "decimal": "DECIMAL(28, 3)",
}
SETTINGS = {
    "pipeline.object-reuse": "true",
    "parallelism.default": str(os.cpu_count()),
    "taskmanager.numberOfTaskSlots": str(os.cpu_count()),
    "taskmanager.memory.managed.size": "2g",
    "taskmanager.memory.network.min": "512m",
    "taskmanager.memory.network.max": "512m",
    "table.local-time-zone": "UTC",
    "table.exec.state.ttl": "0",
    "rest.bind-address": "127.0.0.1",
    "rest.address": "127.0.0.1",
    "rest.bind-port": "0",
}


class Flink:
    """A table environment in streaming mode for each job; all jobs in one JVM."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._environment()

    def versions(self) -> dict[str, str]:
        return {"apache-flink": version("apache-flink")}

    def check(self, workload: Workload, count: int, files: list[Path], out: Path) -> None:
        inbox = out.parent / f"{out.name}-in"
        link(inbox, files)
        self._job(workload, count, inbox, out)

    def time(
        self, workload: Workload, count: int, warm: list[Path], measured: list[Path], place: Path, mark: Mark
    ) -> float:
        link(place / "warm", warm)
        link(place / "in", measured)
        (place / "none").mkdir()
        (place / "none" / "empty.json").touch()
        self._job(workload, count, place / "warm", None)
        idle = self._job(workload, count, place / "none", None)
        mark("begin")
        took = self._job(workload, count, place / "in", None)
        mark("end")
        return max(took - idle, 0.001)

    def close(self) -> None:
        """The JVM ends with this process."""

    def _environment(self) -> TableEnvironment:
        configuration = Configuration()
        for key, value in SETTINGS.items():
            configuration.set_string(key, value)
        settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
        return TableEnvironment.create(settings)

    def _job(self, workload: Workload, count: int, inbox: Path, out: Path | None) -> float:
        """Run the first `count` queries over the files in `inbox` to the end; the seconds from submission on."""
        env = self._environment()
        env.execute_sql(source(workload, count, inbox))
        statements = env.create_statement_set()
        for number, query in enumerate(workload.first(count)):
            if out is None:
                statements.add_insert(TableDescriptor.for_connector("blackhole").build(), env.sql_query(query.flink))
            else:
                env.execute_sql(sink(number, query, out))
                statements.add_insert_sql(cast(number, query))
        began = time.monotonic()
        statements.execute().wait()
        return time.monotonic() - began


def source(workload: Workload, count: int, inbox: Path) -> str:
    """The table `s` over the files of a directory, with the columns that some query needs."""
    columns = ", ".join(f"`{name}` {TYPES.get(kind, kind)}" for name, kind in workload.needed(count))
    watermark = f"WATERMARK FOR `{workload.time}` AS `{workload.time}` - INTERVAL '1' SECOND"
    return (
        f"CREATE TEMPORARY TABLE s ({columns}, {watermark}) WITH ('connector' = 'filesystem', 'path' = "
        f"'file://{inbox}', 'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601')"
    )


def sink(number: int, query: Query, out: Path) -> str:
    """A table that writes its rows as JSON lines."""
    columns = ", ".join(f"`{name}` {OUTPUT[kind]}" for name, kind in query.output)
    return (
        f"CREATE TEMPORARY TABLE o{number} ({columns}) WITH ('connector' = 'filesystem', 'path' = "
        f"'file://{out / str(number)}', 'format' = 'json', 'json.timestamp-format.standard' = 'SQL')"
    )


def cast(number: int, query: Query) -> str:
    """The INSERT of a query that is checked: its columns in the types that outputs are compared as."""
    columns = ", ".join(f"CAST(`{name}` AS {OUTPUT[kind]}) AS `{name}`" for name, kind in query.output)
    return f"INSERT INTO o{number} SELECT {columns} FROM ({query.flink}) AS r"


if __name__ == "__main__":
    serve(Flink)
