"""Metadata columns of pushed records: who sent them, and when."""

from __future__ import annotations

import datetime as dt
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.ingress.counters import NAMES, Counters
from headrace.ingress.journal import Journal
from headrace.ingress.mark import JournalPosition
from headrace.ingress.ready import ReadyLog
from headrace.model.schema import STRING, TIMESTAMP
from headrace.sources.journal_reader import JournalSplit
from tests.shared.mini import Mini

COLUMNS = "a BIGINT, peer STRING METADATA, at TIMESTAMP METADATA FROM 'arrival'"


def test_records_know_their_peer_and_their_arrival(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mini = Mini(tmp_path / "state", monkeypatch)
    try:
        mini.hub.sql(
            "CREATE SINK out WITH (type = 'kept');"
            f"CREATE STREAM s ({COLUMNS}) WITH (source = 'tcp', format = 'json', listen = '127.0.0.1:0');"
            "CREATE PIPELINE p INTO out AS SELECT a, peer, at FROM s"
        )
        port = int(mini.hub.streams["s"].ingress()["addresses"][0].rpartition(":")[2])
        begin = dt.datetime.now(dt.UTC)
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        names = [f"127.0.0.1:{client.getsockname()[1]}" for client in clients]
        clients[0].sendall(b'{"a": 0}\n{"a":')  # a record that spans two buffers
        clients[1].sendall(b'{"a": 1}\n{"a": 2}\n')
        time.sleep(0.1)
        clients[0].sendall(b" 3}\n")
        found: list[Any] = []
        while len(found) < 4:
            mini.drain()
            found = [row for values in mini.checkpoint.kept.values() for row in values]
            assert dt.datetime.now(dt.UTC) - begin < dt.timedelta(seconds=30)
        for client in clients:
            client.close()
        sent = {a: peer for a, peer, _ in found}
        assert sent == {0: names[0], 1: names[1], 2: names[1], 3: names[0]}
        times = {a: at for a, _, at in found}
        slack = dt.timedelta(milliseconds=1)
        assert begin - slack <= min(times.values()) and max(times.values()) <= dt.datetime.now(dt.UTC)
        assert times[3] - times[0] > dt.timedelta(milliseconds=50)
    finally:
        mini.hub.close(drain=False)


def test_counters_of_a_journal_of_an_earlier_version_are_kept() -> None:
    """It had the classes tcp, tcp_client and http."""
    found = Counters(np.arange(1, 3 * len(NAMES) + 1, dtype=np.int64))
    assert found.of("http")["opened"] == 2 * len(NAMES) + 1 and found.of("mqtt")["bytes"] == 0
    assert len(Counters(found.to_array()).used()) == 3


@pytest.mark.parametrize("known", [True, False])
def test_a_journal_without_these_facts_is_readable(tmp_path: Path, known: bool) -> None:
    """As an earlier version wrote it, and after a restart of the gateway."""
    journal = Journal(tmp_path, 1 << 20)
    journal.peers = {7: "h:1"} if known else None
    journal.put(origin=7, sequence=1, data=b"1\n2\n", first=2, last=4)
    journal.flush()
    journal.close()
    log = ReadyLog(tmp_path)
    log.follow(JournalPosition())
    groups = log.stretches(JournalPosition(), log.advance(JournalPosition(), None), 1)
    fmt: Any = None
    (chunk,) = (c for g in groups for c in JournalSplit(str(tmp_path), "s", tuple(g), True).read(fmt))
    assert bytes(chunk.data) == b"1\n2\n" and chunk.facts is not None
    places = np.array([chunk.offset, chunk.offset + 2], np.int64)
    assert chunk.facts.column("peer", STRING, places).values.to_pylist() == (["h:1"] * 2 if known else [None] * 2)
    assert chunk.facts.column("arrival", TIMESTAMP, places).values.null_count == (0 if known else 2)
