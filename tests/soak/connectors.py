"""Kills brokers, hubs, workers and planners between real servers, and compares what arrived with what was sent.

    python -m tests.soak.connectors --kills 60 --seed 1

A hub in a process of its own reads Kafka, MQTT and objects of an S3 server. It writes Kafka to Kafka, to Postgres and
to a Delta table, MQTT to files, and objects to objects. While messages are under way, one process is killed: the broker
(SIGKILL; Mosquitto gets SIGTERM, because a killed one loses what it has not saved), the hub with all its processes, a
Python worker, or a planning process. At the end every sink must have exactly the rows that were sent. A server that
cannot be had is left out, and said so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.report import Report, finish
from tests.connectors.broker import Broker, BrokerMissing
from tests.connectors.mosquitto import Mosquitto
from tests.connectors.postgresql import PASSWORD, PostgresServer, ServerMissing
from tests.connectors.s3_server import BUCKET, S3Server
from tests.connectors.topics import Topics
from tests.e2e.kills import session_of
from tests.soak.hubs import HubError, HubGone, RemoteHub
from tests.soak.life import end_hub
from tests.soak.processes import kill, victims

TARGETS = ("hub", "worker", "broker", "planner")
STARTS = 5  # attempts to start the pipelines
ARRIVES_WITHIN = 600.0  # seconds after the last kill
Found = Callable[[], Counter[int]]


class Servers:
    """The servers that can be had here. `absent` has the reasons of the others."""

    def __init__(self, root: Path) -> None:
        self.absent: dict[str, str] = {}
        self.kafka: Broker | None = None
        self.postgres: PostgresServer | None = None
        self.mqtt: Mosquitto | None = None
        self.s3: S3Server | None = None
        with self._unless("kafka", BrokerMissing):
            self.kafka = Broker(root / "kafka").start()
        with self._unless("postgres", ServerMissing, ImportError):
            self.postgres = PostgresServer()
        with self._unless("mqtt", pytest.skip.Exception):
            (root / "mqtt").mkdir()
            self.mqtt = Mosquitto(root / "mqtt")
        with self._unless("s3", pytest.skip.Exception):
            self.s3 = S3Server(root / "s3.log")

    @contextlib.contextmanager
    def _unless(self, name: str, *problems: type[BaseException]) -> Any:
        try:
            yield
        except problems as problem:
            self.absent[name] = str(problem)

    def stop(self) -> None:
        for server in (self.kafka, self.mqtt, self.s3):
            if server is not None:
                server.stop()
        if self.postgres is not None:
            self.postgres.remove()


class ConnectorCase:
    """One state directory with its hub, and what was sent."""

    def __init__(self, root: Path, servers: Servers, rng: random.Random) -> None:
        self.root, self.servers, self.rng = root, servers, rng
        self.sent = 0
        self.kills: Counter[str] = Counter()
        self.sinks: dict[str, Found] = {}
        self._statements: list[str] = []
        if servers.kafka is not None:
            self._kafka(Topics(servers.kafka.address))
        if servers.mqtt is not None:
            self._mqtt(servers.mqtt)
        if servers.s3 is not None:
            self._s3(servers.s3)

    def begin(self) -> None:
        """Open the hub and declare everything. A machine that is very busy may need several attempts."""
        self.hub = self._open()
        for attempt in range(STARTS):
            try:
                self.hub.sql(";\n".join(self._statements))
                return
            except HubError as problem:
                if problem.code not in ("STREAM_FAILED", "START_TIMEOUT") or attempt == STARTS - 1:
                    raise

    def _open(self) -> RemoteHub:
        return RemoteHub(self.root / "state", self.root / "said").opened()

    def _kafka(self, topics: Topics) -> None:
        self._topics, self._source, copy = topics, topics.make(partitions=2), topics.make(partitions=2)
        where = f"kafka.bootstrap.servers = '{topics.address}'"
        delta = self.root / "delta"
        self._statements += [
            f"CREATE STREAM k (a BIGINT) WITH (source = 'kafka', format = 'json', topics = '{self._source}', {where})",
            f"CREATE SINK k_copy WITH (type = 'kafka', topic = '{copy}', {where})",
            f"CREATE SINK k_delta WITH (type = 'delta', path = '{delta}')",
            "CREATE PIPELINE kafka_to_kafka INTO k_copy AS SELECT a FROM k",
            "CREATE PIPELINE kafka_to_delta INTO k_delta AS SELECT a FROM k",
        ]
        self.sinks["kafka to kafka"] = lambda: Counter(json.loads(m.value())["a"] for m in topics.read(copy))
        self.sinks["kafka to delta"] = lambda: _delta(delta)
        postgres = self.servers.postgres
        if postgres is not None:
            password = PASSWORD.replace("'", "''")
            self._statements += [
                f"CREATE SINK k_rows WITH (type = 'postgres', url = '{postgres.url}', password = '{password}', "
                "table = 'soaked', create_table = 'true')",
                "CREATE PIPELINE kafka_to_postgres INTO k_rows AS SELECT a FROM k",
            ]
            self.sinks["kafka to postgres"] = lambda: _table(postgres)

    def _mqtt(self, broker: Mosquitto) -> None:
        out = self.root / "files"
        self._statements += [
            f"CREATE STREAM m (a BIGINT) WITH (source = 'mqtt', format = 'json', url = '{broker.url}', topics = 't', "
            "qos = '2')",
            f"CREATE SINK m_files WITH (type = 'jsonl', path = '{out}')",
            "CREATE PIPELINE mqtt_to_files INTO m_files AS SELECT a FROM m",
        ]
        self.sinks["mqtt to files"] = lambda: _lines(f.read_bytes() for f in out.glob("part-*"))

    def _s3(self, server: S3Server) -> None:
        store = self._store = server.store("soak")
        store.put("in/.begin", b"")
        url = f"s3://{BUCKET}/soak"
        self._statements += [
            f"CREATE STREAM o (a BIGINT) WITH (source = 'files', format = 'json', path = '{url}/in/*.jsonl', "
            f"{server.options})",
            f"CREATE SINK o_objects WITH (type = 'jsonl', path = '{url}/out', {server.options})",
            "CREATE PIPELINE objects_to_objects INTO o_objects AS SELECT a FROM o",
        ]
        self.sinks["objects to objects"] = lambda: _lines(
            store.read(info.name) for info in store.objects("out", recursive=False) if info.name.endswith(".jsonl")
        )

    def send(self, count: int) -> None:
        """Send rows with new numbers to every source."""
        rows = [json.dumps({"a": i}) for i in range(self.sent, self.sent + count)]
        if self.servers.kafka is not None:
            self._topics.write(self._source, rows, partition=self.rng.randrange(2))
        if self.servers.mqtt is not None:
            self.servers.mqtt.send("t", rows)
        if self.servers.s3 is not None:
            self._store.put(f"in/{self.sent:08}.jsonl", ("\n".join(rows) + "\n").encode())
        self.sent += count

    def kill(self, target: str) -> None:
        """Kill one process while rows are under way."""
        self.send(self.rng.randrange(20, 200))
        time.sleep(self.rng.uniform(0, 3))
        if target == "hub":
            end_hub(self.hub, signal.SIGKILL)
            self.kills["hub"] += 1
            self.hub = self._open()
        elif target == "broker":
            if self.servers.kafka is not None:
                self.servers.kafka.restart()
                self.kills["broker"] += 1
            if self.servers.mqtt is not None and self.rng.random() < 0.5:
                self.servers.mqtt.stop()
                self.servers.mqtt.start()
        else:
            deadline = time.monotonic() + 30
            while not kill(victims(self.hub.pid, target, self.rng)) and time.monotonic() < deadline:
                time.sleep(0.1)
            self.kills[target] += 1

    def check(self) -> dict[str, str]:
        """Wait until every sink has what was sent. Returns what is wrong, by sink."""
        self.send(10)
        wanted, wrong = Counter(range(self.sent)), dict[str, str]()
        deadline = time.monotonic() + ARRIVES_WITHIN
        for name, found in self.sinks.items():
            rows = found()
            while rows.total() < wanted.total() and time.monotonic() < deadline:
                time.sleep(1)
                rows = found()
            if rows != wanted:
                extra, missing = rows - wanted, wanted - rows
                wrong[name] = (
                    f"{extra.total()} too many {list(extra)[:5]}, {missing.total()} missing {list(missing)[:5]}"
                )
        if wrong:
            wrong["hub"] = f"{self.hub.states()} {self.hub.problems()}"
        return wrong

    def end(self) -> None:
        with contextlib.suppress(HubGone, AttributeError):
            self.hub.signal(signal.SIGKILL)
            self.hub.wait()
            for pid in session_of(self.hub.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _lines(texts: Any) -> Counter[int]:
    return Counter(json.loads(line)["a"] for text in texts for line in text.splitlines())


def _table(postgres: PostgresServer) -> Counter[int]:
    if postgres.sql("SELECT to_regclass('soaked') IS NULL") == [(True,)]:  # it is not there before the first epoch
        return Counter()
    return Counter(a for (a,) in postgres.sql("SELECT a FROM soaked"))


def _delta(path: Path) -> Counter[int]:
    from deltalake import DeltaTable

    try:
        table: Any = DeltaTable(str(path)).to_pyarrow_table(columns=["a"])
    except Exception:  # it is not there before the first epoch
        return Counter()
    return Counter(table.column("a").to_pylist())


def soak(kills: int, seed: int, say: Callable[[str], None]) -> tuple[Counter[str], dict[str, str], dict[str, str]]:
    """Kill so many processes. Returns the kills by target, what is wrong by sink, and the servers that are absent."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="headrace-connectors-", ignore_cleanup_errors=True) as directory:
        servers = Servers(Path(directory))
        try:
            case = ConnectorCase(Path(directory), servers, rng)
            try:
                case.begin()
                case.send(50)
                for number in range(kills):
                    case.kill(TARGETS[number % len(TARGETS)] if number < len(TARGETS) else rng.choice(TARGETS))
                    say(f"{number + 1} of {kills} kills ({dict(case.kills)}), {case.sent} rows sent to every source")
                return case.kills, case.check(), servers.absent
            finally:
                case.end()
        finally:
            servers.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill processes between real servers and compare rows.")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else time.time_ns() % 1_000_000
    began = time.monotonic()
    out = sys.stderr if arguments.json else sys.stdout
    kills, wrong, absent = soak(arguments.kills, seed, lambda text: print(text, file=out, flush=True))
    report = Report(facts={"seed": seed, "minutes": round((time.monotonic() - began) / 60, 1), "absent": absent})
    report.facts |= {f"kills of {target}": kills[target] for target in TARGETS}
    if wrong:
        report.facts["wrong"] = wrong
    report.require("connector_kills", kills.total(), arguments.kills, "at least")
    report.require("connector_differences", len(wrong), 0, "at most")
    return finish(report, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
