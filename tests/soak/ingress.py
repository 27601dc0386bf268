"""Overload on the path users run: producers ten times too fast for a pipeline on Spark, for each backpressure strategy.

    python -m tests.soak.ingress --seconds 30

Epochs are made small, so the pipeline reads a known little; its speed is measured first. Then four clients send at ten
times that speed (under `pause`: try to). Memory of the gateway and size of the journal are watched all the time; in the
end every row that was sent must be in the sink or counted as dropped.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

import headrace
from headrace.hub.hub import Hub

EPOCH_BYTES = 400_000
STRATEGIES = ("pause", "drop", "spill")
LIMIT = 4 << 20
SPILL = 8 << 20
CLIENTS = 4
MEMORY = 400 << 20  # resident bytes of the gateway, the compiler's libraries included


class Producer(threading.Thread):
    """Sends rows at a rate until a given time, and ends after a whole row."""

    def __init__(self, address: str, number: int, bytes_per_s: float, until: float) -> None:
        super().__init__(daemon=True)
        host, port = address.removeprefix("tcp://").split(":")
        self.client = socket.create_connection((host, int(port)))
        self.number, self.rate, self.until, self.rows, self.size = number, bytes_per_s, until, 0, 0

    def run(self) -> None:
        began = time.monotonic()
        while (now := time.monotonic()) < self.until:
            if self.size > (now - began) * self.rate:
                time.sleep(0.005)
                continue
            rows = range(self.rows, self.rows + 50)
            data = "".join(f'{{"id":{i},"k":"client {self.number}","pad":"{"x" * 80}"}}\n' for i in rows).encode()
            self.client.sendall(data)
            self.rows, self.size = rows.stop, self.size + len(data)
        self.client.shutdown(socket.SHUT_WR)
        while self.client.recv(1000):
            pass
        self.client.close()


def overload(root: Path, strategy: str, seconds: float) -> str:
    """Run one strategy. Returns one line about the result. Raises AssertionError when a bound or a count is wrong."""
    spill = f", max_spill_bytes = '{SPILL}'" if strategy == "spill" else ""
    with headrace.connect(root / strategy) as hub:
        hub.sql(f"""
            CREATE STREAM s (id BIGINT, k STRING, pad STRING) WITH (source = 'tcp', format = 'json',
              listen = '127.0.0.1:0', max_epoch_bytes = '{EPOCH_BYTES}', backpressure = '{strategy}',
              max_journal_bytes = '{LIMIT}'{spill});
            CREATE SINK out WITH (type = 'parquet', path = '{root / strategy}-out');
            CREATE PIPELINE p INTO out AS SELECT id, k FROM s""")
        (address,) = hub.streams["s"].addresses()
        speed = _speed(hub, address)
        before = hub.streams["s"].status().rows
        lost = hub.streams["s"].ingress()["classes"]["tcp"]["dropped_records"]
        until = time.monotonic() + seconds
        producers = [Producer(address, i, 10 * speed / CLIENTS, until) for i in range(CLIENTS)]
        for producer in producers:
            producer.start()
        most_disk = most_memory = 0
        while any(p.is_alive() for p in producers):
            facts = hub.streams["s"].ingress()
            most_disk = max(most_disk, facts["disk_bytes"])
            most_memory = max(most_memory, _resident(facts["gateway_pid"]))
            time.sleep(0.2)
        sent = sum(p.rows for p in producers)
        _until(lambda: hub.streams["s"].ingress()["journal_bytes"] == 0, 600)
        counters = hub.streams["s"].ingress()["classes"]["tcp"]
        read = hub.streams["s"].status().rows - before
        dropped = counters["dropped_records"] - lost
        bound = 2 * (LIMIT + (SPILL if strategy == "spill" else 0)) + (4 << 20)
        assert read + dropped == sent, (strategy, read, dropped, sent, counters)
        assert counters["cut_records"] == 0
        assert (dropped > 0) == (strategy != "pause"), (strategy, dropped)
        assert most_disk < bound, (strategy, most_disk, bound)
        assert most_memory < MEMORY, (strategy, most_memory)
    return (
        f"{strategy}: {sent:,} rows sent in {seconds:g} s to a pipeline that reads {speed / 1e3:.0f} kB/s; "
        f"{read:,} read, {dropped:,} dropped; at most {most_disk / 1e6:.1f} MB of disk and "
        f"{most_memory / 1e6:.0f} MB of memory"
    )


def _speed(hub: Hub, address: str) -> float:
    """Bytes a second that the pipeline reads when it has enough to do."""
    warm = Producer(address, 9, 1e9, time.monotonic() + 1.0)
    warm.start()
    warm.join()
    began, rows = time.monotonic(), hub.streams["s"].status().rows
    _until(lambda: hub.streams["s"].ingress()["journal_bytes"] == 0, 300)
    read = hub.streams["s"].status().rows - rows
    dropped = hub.streams["s"].ingress()["classes"]["tcp"]["dropped_records"]
    assert hub.streams["s"].status().rows + dropped == warm.rows
    return read * (warm.size / warm.rows) / (time.monotonic() - began)


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def _until(fact: object, seconds: float) -> None:
    assert callable(fact)
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description="Overload a stream, and count every row.")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each strategy is overloaded")
    parser.add_argument("--strategy", nargs="+", choices=STRATEGIES, default=STRATEGIES, help="default: each")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        for strategy in arguments.strategy:
            print(overload(Path(root), strategy, arguments.seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
