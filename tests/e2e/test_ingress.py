"""Real TCP clients and a real HTTP client feed pipelines on Spark; a killed hub loses nothing that it acknowledged."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from tests.e2e.kills import read, session_of
from tests.e2e.support import assert_same_rows, rows_of, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, k STRING, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS"


def row(i: int) -> dict[str, Any]:
    ts = datetime(2026, 1, 1) + timedelta(seconds=i * 60 // 4000)
    return {"id": i, "k": f"k{i % 3}", "v": i * 31 % 1000, "ts": f"{ts.isoformat()}Z"}


def text(begin: int, end: int) -> bytes:
    return b"".join(json.dumps(row(i)).encode() + b"\n" for i in range(begin, end))


def send_tcp(address: str, data: bytes, piece: int = 777) -> int:
    """Send in pieces that end anywhere. Returns the number of acknowledged bytes."""
    host, port = address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as client:
        for at in range(0, len(data), piece):
            client.sendall(data[at : at + piece])
        client.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    return int(answer.split()[-1])


def send_http(address: str, bodies: list[bytes]) -> list[int]:
    """Post the bodies over one connection. Returns the status codes."""
    host, _, path = address.removeprefix("http://").partition("/")
    client = http.client.HTTPConnection(host, timeout=30)
    answers = []
    for body in bodies:
        client.request("POST", f"/{path}", body, {"Authorization": "Bearer s3cret"})
        answer = client.getresponse()
        answer.read()
        answers.append(answer.status)
    client.close()
    return answers


def test_tcp_and_http_clients_feed_pipelines(spark: SparkSession, tmp_path: Path) -> None:
    with headrace.connect(tmp_path / "state", spark) as hub:
        hub.sql(f"""
            CREATE STREAM t ({COLUMNS}) WITH (source = 'tcp', format = 'json', listen = '127.0.0.1:0', acks = 'true');
            CREATE STREAM h ({COLUMNS}) WITH (
              source = 'http', format = 'json', listen = '127.0.0.1:0', token = 's3cret');
            CREATE SINK a WITH (type = 'memory'); CREATE SINK b WITH (type = 'memory');
            CREATE PIPELINE plain INTO a AS SELECT id, k, v FROM t WHERE v % 2 = 0;
            CREATE PIPELINE counted INTO b AS
              SELECT k, count(*) AS n, sum(v) AS total FROM h GROUP BY window(ts, '1 hour'), k EMIT CHANGES
        """)
        (tcp,), (web,) = (hub.streams[name].addresses() for name in ("t", "h"))
        shares = [text(i * 1000, (i + 1) * 1000) for i in range(4)]
        acknowledged = [0] * 4

        def client(i: int) -> None:
            acknowledged[i] = send_tcp(tcp, shares[i], 501 + i)

        threads = [threading.Thread(target=client, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        assert send_http(web, [text(i * 100, (i + 1) * 100).rstrip() for i in range(20)]) == [204] * 20
        for thread in threads:
            thread.join()
        assert acknowledged == [len(share) for share in shares]
        until(lambda: hub.streams["t"].status().rows == 4000, "all TCP rows are read")
        until(lambda: hub.streams["h"].status().rows == 2000, "all HTTP rows are read")
        wanted = [(r["id"], r["k"], r["v"]) for r in map(row, range(4000)) if r["v"] % 2 == 0]
        assert_same_rows(rows_of(hub.pipelines["plain"].results()), wanted, "plain")
        groups: dict[str, list[int]] = {}
        for i in range(2000):
            groups.setdefault(row(i)["k"], []).append(row(i)["v"])
        last = {r[0]: r for r in rows_of(hub.pipelines["counted"].results())}
        assert_same_rows(list(last.values()), [(k, len(v), sum(v)) for k, v in groups.items()], "counted")
        described = hub.sql("DESCRIBE STREAM h")[0].table
        assert described is not None
        facts: dict[str, Any] = dict(rows_of(described))
        assert facts["option token"] == "***"
        assert "'requests': 20" in facts["ingress http"]
        assert facts["ingress addresses"] == web
        hub.sql("STOP PIPELINE counted")
        with pytest.raises(OSError):
            send_http(web, [b"{}"])  # the last pipeline left: the gateway closed with the stream
        assert send_tcp(tcp, text(0, 1)) == len(text(0, 1))  # the other stream still listens


@pytest.mark.slow
def test_a_killed_hub_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (tmp_path / "app.sql").write_text(f"""
        CREATE STREAM IF NOT EXISTS s ({COLUMNS}) WITH (source = 'http', format = 'json', listen = '127.0.0.1:{port}',
          token = 's3cret', max_epoch_bytes = '100000');
        CREATE SINK IF NOT EXISTS rows_parquet WITH (type = 'parquet', path = '{tmp_path / "rows_parquet"}');
        CREATE PIPELINE IF NOT EXISTS plain INTO rows_parquet AS SELECT id, k, v FROM s;
    """)
    command = [sys.executable, "-m", "headrace.app.cli", "run", "app.sql", "--state-dir", "state"]
    feeder = Feeder(f"http://127.0.0.1:{port}/ingest/s")
    output = tmp_path / "rows_parquet"

    def ids() -> set[int]:
        return {r[0] for r in read(output, ("id",))} if output.exists() else set()

    children: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
        children.append(child)
        had = len(feeder.acknowledged)
        until(lambda: feeder.feed(0.2) > had, "the gateway takes requests")
        return child

    def end(child: subprocess.Popen[bytes], how: int) -> None:
        os.kill(child.pid, how)
        child.communicate(timeout=60)
        until(lambda: not session_of(child.pid), "nothing of the run is left", 40)

    try:
        first = start()
        until(ids, "an epoch")
        feeder.feed(1.0)
        end(first, signal.SIGKILL)
        second = start()
        feeder.feed(0.5)
        until(lambda: set(feeder.acknowledged) <= ids(), "all acknowledged rows")
        end(second, signal.SIGINT)
    finally:
        for child in children:
            if child.poll() is None:
                end(child, signal.SIGKILL)
    found = Counter(r[0] for r in read(output, ("id",)))
    assert found.most_common(1)[0][1] == 1


class Feeder:
    """Posts rows, twenty a request, and knows which were acknowledged. What was not is never sent again."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.acknowledged: list[int] = []
        self.next = 0

    def feed(self, seconds: float) -> int:
        """Post for some time. Returns how many rows are acknowledged so far."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ids = range(self.next, self.next + 20)
            try:
                answers = send_http(self.address, [text(ids.start, ids.stop)])
            except ConnectionRefusedError:
                time.sleep(0.05)
                continue
            except (OSError, http.client.HTTPException):
                answers = []
            self.acknowledged += ids if answers == [204] else ()
            self.next = ids.stop
        return len(self.acknowledged)
