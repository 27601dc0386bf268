"""A stream that others send to: two devices over TCP, one over HTTP, and what the gateway counted."""

from __future__ import annotations

import socket
import tempfile
import time
import urllib.request
from pathlib import Path

import headrace

COLUMNS = "device STRING, ts TIMESTAMP, temp DOUBLE, WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS"
SCRIPT = f"""
CREATE STREAM wired ({COLUMNS}) WITH (source = 'tcp', format = 'json', listen = '127.0.0.1:0', acks = 'true');
CREATE STREAM web ({COLUMNS}) WITH (source = 'http', format = 'json', listen = '127.0.0.1:0');
CREATE SINK from_wired WITH (type = 'memory');
CREATE SINK from_web WITH (type = 'memory');
CREATE PIPELINE hot INTO from_wired AS SELECT device, temp FROM wired WHERE temp > 24;
CREATE PIPELINE all_web INTO from_web AS SELECT device, ts, temp FROM web;
"""


def readings(device: str, count: int) -> bytes:
    lines = (
        f'{{"device":"{device}","ts":"2026-01-01T00:00:{i % 60:02d}Z","temp":{20 + i % 10}}}\n' for i in range(count)
    )
    return "".join(lines).encode()


def send(address: str, data: bytes) -> int:
    """Send over TCP in small pieces, which need not end on a record; how many bytes were acknowledged."""
    host, port = address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as client:
        for at in range(0, len(data), 1000):
            client.sendall(data[at : at + 1000])
        client.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    return int(answer.split()[-1])


def main() -> None:
    with tempfile.TemporaryDirectory() as state, headrace.connect(state_dir=Path(state) / "state") as hub:
        hub.sql(SCRIPT)
        wired, web = (hub.streams[name].addresses()[0] for name in ("wired", "web"))
        for device in ("d1", "d2"):
            print(device, "acknowledged", send(wired, readings(device, 500)), "bytes")
        with urllib.request.urlopen(web, data=readings("d3", 100)) as answer:
            print("d3", "answered", answer.status)
        while hub.streams["wired"].status().rows + hub.streams["web"].status().rows < 1100:
            time.sleep(0.1)
        print(hub.pipelines["hot"].results().to_pandas().groupby("device").count())
        print(len(hub.pipelines["all_web"].results()), "rows over HTTP")
        print(hub.sql("DESCRIBE STREAM wired")[0].render())


if __name__ == "__main__":
    main()
