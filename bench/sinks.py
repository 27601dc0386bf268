"""Rows per second of every sink that keeps rows outside of the process, beside its library used directly.

Both begin with the same Arrow table in memory and end when the other side has acknowledged every row. The sink stages
the rows as a task does and commits them as the driver does, in one epoch after a warm-up. The library does what a short
program would do: `pyarrow.parquet.write_table`, DuckDB's `COPY` to JSON, `write_deltalake`, ADBC's `adbc_ingest`. For
brokers that is `json.dumps` of each row and one call of the client for it, then waiting for all acknowledgements. Both
sides use the same compression, the same version of MQTT, and one thread for conversions, as a task does. Files of
Parquet and JSON are synced to disk on both sides; `write_deltalake` does not do that, and the sink does.
Servers run on loopback; the web server is a process of its own and throws bodies away. Contenders take turns, and the
best run of each counts. The processor time is that of this process, without servers. A server that is not installed is
left out, and said so.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from bench.report import Report, environment, main
from headrace.model.definitions import SinkDef
from headrace.model.schema import BIGINT, DOUBLE, STRING, TIMESTAMP, Field, Schema
from headrace.sinks import SINKS, SinkKey, settle_sink
from tests.connectors.broker import Broker, BrokerMissing
from tests.connectors.mosquitto import Mosquitto
from tests.connectors.nats_server import NatsServer
from tests.connectors.postgresql import PASSWORD, PostgresServer, ServerMissing
from tests.connectors.topics import Topics

QUICK = "--quick" in sys.argv
# --only files,mqtt measures these.
ONLY = frozenset(sys.argv[sys.argv.index("--only") + 1].split(",") if "--only" in sys.argv else ())
ROWS, MESSAGES = (50_000, 10_000) if QUICK else (500_000, 50_000)  # of files and tables, of brokers
ROUNDS = 2 if QUICK else 4
OUTPUT = Schema(
    (Field("id", BIGINT), Field("device", STRING), Field("at", TIMESTAMP), Field("temp", DOUBLE), Field("n", BIGINT))
)
_DISCARD = """
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204); self.end_headers()
    def log_message(self, *args): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
print(s.server_port, flush=True); s.serve_forever()
"""
Direct = Callable[[pa.Table], None]
Say = Callable[[str], None]


def table_of(rows: int) -> pa.Table:
    """Rows of plausible readings."""
    rng = np.random.default_rng(1)
    at = np.int64(1_767_225_600_000_000) + np.arange(rows, dtype=np.int64) * 1000
    columns: list[Any] = [
        pa.array(np.arange(rows)),
        pa.array([f"device-{i % 500}" for i in range(rows)]),
        pa.array(at).view(TIMESTAMP.arrow),
        pa.array(rng.normal(20, 5, rows).round(2)),
        pa.array(rng.integers(0, 1000, rows)),
    ]
    return pa.table(columns, schema=OUTPUT.arrow)


def _json(table: pa.Table) -> Iterator[bytes]:
    for row in table.to_pylist():
        row["at"] = row["at"].isoformat()
        yield json.dumps(row).encode()


class Contest:
    """One sink and its library."""

    def __init__(self, work: Path, kind: str, options: dict[str, str], direct: Direct, rows: int) -> None:
        self.kind, self._direct, self._table = kind, direct, table_of(rows)
        staged = "staging" in {o.name for o in SINKS[kind].all_options}
        self._sink = settle_sink(
            SinkDef("out", kind, options | ({"staging": str(work / f"staging-{kind}")} if staged else {}))
        )
        self._driver = SINKS[kind].driver(self._sink, OUTPUT)
        self._epoch = 0

    def _ours(self, table: pa.Table) -> None:
        key = SinkKey("bench", 1, self._epoch, str(self._epoch))
        self._epoch += 1
        done = self._driver.commit(key, [SINKS[self.kind].task(self._sink).stage(table, key)])
        assert done == table.num_rows

    def run(self, say: Say) -> tuple[float, float]:
        """Rows per second of the sink and of the library."""
        best, cpu = [0.0, 0.0], [float("inf")] * 2
        for act in (self._ours, self._direct):
            act(self._table.slice(0, 1000))
        for _ in range(ROUNDS):
            for i, act in enumerate((self._ours, self._direct)):
                began, used = time.perf_counter(), time.process_time()
                act(self._table)
                best[i] = max(best[i], self._table.num_rows / (time.perf_counter() - began))
                cpu[i] = min(cpu[i], (time.process_time() - used) * 1e6 / self._table.num_rows)
        self._driver.close()
        both = [f"{best[i]:,.0f} rows/s with {cpu[i]:.2f} us of processor time per row" for i in (0, 1)]
        say(f"  {self.kind}: {both[0]}; its library {both[1]}")
        return best[0], best[1]


def _durable(path: Path) -> None:
    """As the sink's files are when it has acknowledged them."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _files(work: Path) -> Iterator[Contest]:
    work.mkdir()

    def parquet(table: pa.Table) -> None:
        path = work / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(table, path, compression="zstd")
        _durable(path)

    def jsonl(table: pa.Table) -> None:
        path = work / f"{uuid.uuid4().hex}.json"
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.register("rows", table)
            connection.execute(f"COPY rows TO '{path}' (FORMAT json)")
        _durable(path)

    yield Contest(work, "parquet", {"path": str(work / "parquet")}, parquet, ROWS)
    yield Contest(work, "jsonl", {"path": str(work / "jsonl")}, jsonl, ROWS)
    from deltalake import WriterProperties, write_deltalake

    def delta(table: pa.Table) -> None:
        write_deltalake(str(work / "direct"), table, mode="append", writer_properties=properties)

    properties = WriterProperties(compression="ZSTD", compression_level=1)

    yield Contest(work, "delta", {"path": str(work / "delta")}, delta, ROWS)


def _postgres(work: Path) -> Iterator[Contest]:
    server = PostgresServer()
    try:
        with server.connect() as connection:

            def direct(table: pa.Table) -> None:
                with connection.cursor() as cursor:
                    cursor.adbc_ingest("direct", table, mode="create_append")

            given = {"url": server.url, "password": PASSWORD, "table": "ours", "create_table": "true"}
            yield Contest(work, "postgres", given, direct, ROWS)
    finally:
        server.remove()


def _kafka(work: Path) -> Iterator[Contest]:
    from confluent_kafka import Producer

    broker = Broker(work / "kafka").start()
    try:
        topics = Topics(broker.address)
        ours, theirs = topics.make(4), topics.make(4)
        settings: Any = {"bootstrap.servers": broker.address, "transactional.id": "direct", "linger.ms": 20}
        producer: Any = Producer(settings)
        producer.init_transactions()

        def direct(table: pa.Table) -> None:
            producer.begin_transaction()
            for value in _json(table):
                while True:
                    try:
                        producer.produce(theirs, value)
                        break
                    except BufferError:
                        producer.poll(0.1)
            producer.commit_transaction()

        yield Contest(work, "kafka", {"topic": ours, "kafka.bootstrap.servers": broker.address}, direct, 4 * MESSAGES)
    finally:
        broker.kill()


def _mqtt(work: Path) -> Iterator[Contest]:
    (work / "mosquitto").mkdir()
    broker = Mosquitto(work / "mosquitto")
    client = broker.client(MQTTProtocolVersion.MQTTv5)

    def direct(table: pa.Table) -> None:
        for sent in [client.publish("direct", value, 1) for value in _json(table)]:
            sent.wait_for_publish(60)

    try:
        yield Contest(work, "mqtt", {"url": broker.url, "topic": "ours"}, direct, MESSAGES)
    finally:
        client.disconnect()
        client.loop_stop()
        broker.stop()


def _nats(work: Path) -> Iterator[Contest]:
    server = NatsServer(work / "nats")
    server.stream("BENCH", "ours", "direct")

    def direct(table: pa.Table) -> None:
        async def publish(client: Any) -> None:
            stream = client.jetstream()
            await asyncio.gather(*[await stream.publish_async("direct", value) for value in _json(table)])

        server.run(publish)

    try:
        yield Contest(work, "nats", {"url": server.url, "subject": "ours"}, direct, MESSAGES)
    finally:
        server.stop()


def _http(work: Path) -> Iterator[Contest]:
    server = subprocess.Popen([sys.executable, "-c", _DISCARD], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = f"http://127.0.0.1:{int(server.stdout.readline())}/"

    def direct(table: pa.Table) -> None:
        with httpx.Client(trust_env=False) as client:
            for at in range(0, table.num_rows, 1000):
                client.post(url, content=b"\n".join(_json(table.slice(at, 1000)))).raise_for_status()

    try:
        yield Contest(work, "http", {"url": url}, direct, MESSAGES)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


@contextmanager
def _or_left_out(name: str, say: Say) -> Iterator[None]:
    try:
        yield
    except (ServerMissing, BrokerMissing, pytest.skip.Exception) as problem:
        say(f"  {name} is left out: {problem}")


def measure(say: Say) -> Report:
    report = Report(facts=environment("pyarrow", "duckdb", "deltalake", "confluent-kafka", "nats-py", "paho-mqtt"))
    found: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        for group in (_files, _postgres, _kafka, _mqtt, _nats, _http):
            name = group.__name__.strip("_")
            if ONLY and name not in ONLY:
                continue
            with _or_left_out(name, say):
                for contest in group(Path(scratch) / name if group is _files else Path(scratch)):
                    ours, theirs = contest.run(say)
                    found[contest.kind] = {"sink": round(ours), "library": round(theirs)}
                    report.require(f"sink_{contest.kind}_over_library", ours / theirs, 0.6, "at least", "x")
    report.facts["rows_per_s"] = found
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
