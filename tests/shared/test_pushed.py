"""Pushed streams on a real hub with a real gateway process and real clients; only Spark is a miniature."""

from __future__ import annotations

import http.client
import os
import random
import shutil
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.app.cli import app
from headrace.errors import AddressInUse, GatewayFailed, JournalDamaged
from headrace.ingress.arena import LARGEST_READ
from headrace.state.journal_repair import repair_journal
from tests.e2e.support import until
from tests.shared.mini import Crash, Mini

COLUMNS = "id BIGINT, k STRING, pad STRING"


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    mini = Mini(tmp_path / "state", monkeypatch)
    yield mini
    mini.hub.close()


def create(mini: Mini, source: str, query: str = "SELECT id, k FROM s", **options: str) -> None:
    given = "".join(f", {name} = '{value}'" for name, value in options.items())
    mini.hub.sql(
        f"CREATE STREAM s ({COLUMNS}) WITH (source = '{source}', format = 'json'{given});"
        f"CREATE SINK out WITH (type = 'kept'); CREATE PIPELINE p INTO out AS {query}"
    )


def output(mini: Mini) -> list[Any]:
    return mini.output(mini.hub.record("p").definition.instance)


def connects(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, 1).close()
    except OSError:
        return False
    return True


def text(ids: range, pad: int = 0) -> bytes:
    return b"".join(b'{"id":%d,"k":"k%d","pad":"%s"}\n' % (i, i % 3, b"x" * pad) for i in ids)


def rows(ids: Iterable[int]) -> Counter[Any]:
    return Counter((i, f"k{i % 3}") for i in ids)


def address(mini: Mini) -> tuple[str, int]:
    host, port = mini.hub.streams["s"].addresses()[0].split("://")[1].split("/")[0].split(":")
    return host, int(port)


def send(place: tuple[str, int], data: bytes, piece: int = 333) -> int:
    """Send in pieces; how many bytes were acknowledged."""
    with socket.create_connection(place) as client:
        for at in range(0, len(data), piece):
            client.sendall(data[at : at + piece])
        client.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    return int(answer.split()[-1]) if answer else 0


def post(place: tuple[str, int], body: bytes, authorization: str = "") -> int | None:
    """The answer to a request; None when there was none."""
    client = http.client.HTTPConnection(*place, timeout=10)
    try:
        client.request("POST", "/ingest/s", body, {"Authorization": authorization} if authorization else {})
        return client.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        client.close()


def drain_until(mini: Mini, fact: Callable[[], bool]) -> None:
    until(lambda: mini.drain() and fact(), "all rows are read", 20)


def test_what_was_acknowledged_is_read_once_whatever_crashes(mini: Mini) -> None:
    create(mini, "http", listen="127.0.0.1:0", max_epoch_bytes="3000")
    acknowledged: list[int] = []
    for turn, place in enumerate(("logged", "tasks", "lanes", "committed")):
        for batch in range(5):
            ids = range(1000 * turn + 20 * batch, 1000 * turn + 20 * batch + 20)
            assert post(address(mini), text(ids).rstrip()) == 204
            acknowledged += ids
        mini.checkpoint.crash = place
        with pytest.raises(Crash):
            mini.drain()
        mini.crash()
    drain_until(mini, lambda: len(output(mini)) >= len(acknowledged))
    assert Counter(output(mini)) == Counter((i, f"k{i % 3}") for i in acknowledged)


def test_connections_in_pieces_feed_an_aggregate(mini: Mini) -> None:
    create(mini, "tcp", "SELECT k, count(*) AS n FROM s GROUP BY k", listen="127.0.0.1:0", acks="true")
    place = address(mini)
    shares = [range(i * 300, i * 300 + 300) for i in range(6)]
    answers: dict[int, int] = {}
    threads = [
        threading.Thread(target=lambda i=i, ids=ids: answers.update({i: send(place, text(ids), 50 + i)}))
        for i, ids in enumerate(shares)
    ]
    for thread in threads:
        thread.start()
    while any(t.is_alive() for t in threads):
        mini.drain()
    assert answers == {i: len(text(ids)) for i, ids in enumerate(shares)}
    drain_until(mini, lambda: mini.hub.streams["s"].status().rows == 1800)
    assert dict(output(mini)) == {f"k{i}": 600 for i in range(3)}
    status = mini.hub.streams["s"].ingress()
    assert status["classes"]["tcp"]["closed"] == 6
    assert status["journal_bytes"] == 0 or until(
        lambda: mini.drain() and mini.hub.streams["s"].ingress()["journal_bytes"] == 0, "everything is released"
    )


def test_rows_that_come_with_an_offered_upgrade_are_read(mini: Mini) -> None:
    create(mini, "http", listen="127.0.0.1:0")
    client = http.client.HTTPConnection(*address(mini), timeout=10)
    for ids in (range(20), range(20, 40)):
        client.request(
            "POST",
            "/ingest/s",
            text(ids),
            {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AA"},
        )
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (204, b"")
    client.close()
    drain_until(mini, lambda: len(output(mini)) >= 40)
    assert Counter(output(mini)) == rows(range(40))
    assert mini.hub.streams["s"].ingress()["classes"]["http_address"]["opened"] == 1


def test_a_gateway_that_is_killed_comes_back_on_its_address_and_lost_nothing(mini: Mini) -> None:
    create(mini, "http", listen="127.0.0.1:0")
    place = address(mini)
    assert post(place, text(range(50))) == 204
    os.kill(mini.hub.streams["s"].ingress()["gateway_pid"], signal.SIGKILL)
    until(lambda: post(place, text(range(50, 60))) == 204, "the gateway is back", 30)
    drain_until(mini, lambda: len(output(mini)) >= 60)
    assert Counter(output(mini)) == rows(range(60))
    facts = mini.hub.streams["s"].ingress()
    assert facts["gateway_restarts"] == 1
    assert facts["classes"]["http"]["bytes"] == len(text(range(60)))


def test_a_stream_whose_address_was_taken_while_the_gateway_restarts_says_so(
    mini: Mini, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(mini, "tcp", listen="127.0.0.1:0")
    stream, place = mini.hub.streams["s"], address(mini)
    gateway = stream.ingress()["gateway_pid"]
    monkeypatch.setattr("headrace.ingress.gateway_service.RESTART_SECONDS", 3.0)
    os.kill(gateway, signal.SIGKILL)
    until(lambda: not connects(place), "it is gone")
    with socket.create_server(place):
        until(lambda: "ADDRESS_IN_USE" in stream.status().problem, "its status says why it takes nothing")
        (described,) = mini.hub.sql("DESCRIBE STREAM s")
        assert "ADDRESS_IN_USE" in described.render()
    until(lambda: not stream.status().problem, "it is open again")
    assert stream.ingress()["state"] == "open"


def test_the_gateway_ends_with_the_last_pipeline_and_what_it_took_is_read_later(mini: Mini) -> None:
    create(mini, "http", listen="127.0.0.1:0")
    place = address(mini)
    assert post(place, text(range(10))) == 204
    assert mini.hub.streams["s"].flush() >= 0
    mini.hub.sql("STOP PIPELINE p")
    assert post(place, b"{}") is None
    assert mini.hub.streams["s"].ingress() == {}
    mini.hub.sql("START PIPELINE p")
    assert post(address(mini), text(range(10, 20))) == 204
    drain_until(mini, lambda: mini.hub.streams["s"].status().rows == 20)


@pytest.mark.parametrize("strategy", ["pause", "drop", "spill"])
def test_producers_that_are_too_fast_lose_what_is_counted_and_no_more(mini: Mini, strategy: str) -> None:
    options = {"max_journal_bytes": "1MiB", "max_epoch_bytes": "100000", "backpressure": strategy}
    options |= {"max_spill_bytes": "1MiB"} if strategy == "spill" else {}
    create(mini, "tcp", listen="127.0.0.1:0", **options)
    place, count = address(mini), 12_000
    producers = [threading.Thread(target=send, args=(place, text(range(count), 400), 9973)) for _ in range(2)]
    for producer in producers:
        producer.start()
    limit = (2 << 20) if strategy == "spill" else 1 << 20
    while any(p.is_alive() for p in producers):
        facts = mini.hub.streams["s"].ingress()
        assert facts["journal_bytes"] <= limit + 2 * LARGEST_READ  # what was read when there was no more room
        assert facts["disk_bytes"] < 2 * limit + (4 << 20)
        mini.step()
        time.sleep(0.02 if strategy != "pause" else 0)  # the pipeline is slow

    def counted() -> bool:
        facts = mini.hub.streams["s"].ingress()
        tcp = facts["classes"]["tcp"]
        read = mini.hub.streams["s"].status().rows
        empty = facts["journal_bytes"] == 0 and tcp["open"] == 0
        return bool(empty and read + tcp["dropped_records"] == 2 * count)

    drain_until(mini, counted)
    tcp = mini.hub.streams["s"].ingress()["classes"]["tcp"]
    assert (tcp["dropped_records"] > 0) == (strategy != "pause")
    assert tcp["cut_records"] == 0
    assert len(output(mini)) == 2 * count - tcp["dropped_records"]
    assert max(Counter(output(mini)).values()) <= 2


def test_a_record_that_is_too_long_is_a_bad_record(mini: Mini) -> None:
    create(mini, "tcp", listen="127.0.0.1:0", max_record_bytes="3000")
    send(address(mini), text(range(2)) + b"y" * 200_000 + b"\n" + text(range(2, 4)))
    drain_until(mini, lambda: len(output(mini)) == 4)
    assert Counter(output(mini)) == rows(range(4))
    assert mini.hub.streams["s"].status().bad == {"record_too_long": 1}


def test_buffers_in_any_order_feed_a_pipeline(mini: Mini, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    create(mini, "buffers", path=str(tmp_path / "in"))
    data = text(range(200))
    pieces = [data[at : at + 37] for at in range(0, len(data), 37)]
    order = list(enumerate(pieces, 1))
    random.Random(5).shuffle(order)
    for number, (sequence, piece) in enumerate(order):
        (tmp_path / "in" / f"a.{sequence}.buf").write_bytes(piece)
        if number % 50 == 0:
            mini.drain()
        if number == 100:
            mini.crash()
    mini.checkpoint.crash = "tasks"
    with pytest.raises(Crash):
        drain_until(mini, lambda: False)
    mini.crash()
    drain_until(mini, lambda: len(output(mini)) == 200)
    assert Counter(output(mini)) == rows(range(200))


def test_facts_of_the_gateway_are_described_without_the_token(mini: Mini) -> None:
    create(mini, "http", listen="127.0.0.1:0", token="s3cret")
    assert post(address(mini), b"{}") == 401
    shown = mini.hub.sql("DESCRIBE STREAM s")[0].render()
    assert "s3cret" not in shown
    assert "listen = '127.0.0.1:0', token = '***')" in mini.hub.sql("SHOW CREATE STREAM s")[0].render()
    assert "ingress http" in shown
    assert f"http://127.0.0.1:{address(mini)[1]}/ingest/s" in shown


def test_a_taken_address_takes_the_script_back(mini: Mini) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(AddressInUse):
            create(mini, "tcp", listen=f"127.0.0.1:{port}")
    assert not mini.hub.pipelines
    create(mini, "tcp", listen=f"127.0.0.1:{port}", acks="true")
    assert send(("127.0.0.1", port), text(range(3))) == len(text(range(3)))
    drain_until(mini, lambda: len(output(mini)) == 3)


def test_what_is_acknowledged_after_a_power_loss_is_read_once(mini: Mini) -> None:
    """The journal is shorter than what an epoch in flight had planned; addresses go on beyond that."""
    create(mini, "http", listen="127.0.0.1:0")
    assert post(address(mini), text(range(50))) == 204
    drain_until(mini, lambda: len(output(mini)) == 50)
    journal = mini.hub.runtime("s").directory / "source" / "journal"
    newest = [max(journal.glob(f"{kind}-*")) for kind in ("segment", "ready")]
    durable = {path: path.stat().st_size for path in newest}
    for turn in range(3):
        assert post(address(mini), text(range(100 + 10 * turn, 110 + 10 * turn))) == 204
    mini.checkpoint.crash = "logged"
    with pytest.raises(Crash):
        until(lambda: mini.drain() and False, "an epoch is planned", 10)
    lost_power = shutil.copytree(journal, journal.with_name("as it was"))
    mini.hub.close(drain=False)
    shutil.rmtree(journal)
    lost_power.rename(journal)
    for path, size in durable.items():
        os.truncate(path, size)
    mini.open()
    assert post(address(mini), text(range(200, 220))) == 204
    drain_until(mini, lambda: len(output(mini)) >= 70)
    assert post(address(mini), text(range(220, 230))) == 204
    drain_until(mini, lambda: len(output(mini)) >= 80)
    assert Counter(output(mini)) == rows(range(50)) + rows(range(200, 230))
    least = len(text(range(100, 130)))  # the gateway looks every now and then what the reader missed
    until(lambda: mini.hub.streams["s"].ingress()["lost_bytes"] >= least, "the loss is counted", 20)


def test_a_damaged_journal_is_repaired_by_the_command(mini: Mini) -> None:
    create(mini, "http", listen="127.0.0.1:0")
    assert post(address(mini), text(range(20))) == 204
    assert post(address(mini), text(range(20, 40))) == 204
    mini.hub.close()
    journal = mini.directory / "streams" / "s" / "source" / "journal"
    segment = max(journal.glob("segment-*"))
    data = bytearray(segment.read_bytes())
    data[100] ^= 1
    segment.write_bytes(data)
    mini.open()
    assert mini.hub.streams["s"].status().state == "dead"
    assert f"[{JournalDamaged.code}]" in mini.hub.streams["s"].status().problem
    with pytest.raises(JournalDamaged):
        mini.hub.sql("START PIPELINE p")
    mini.hub.close()
    found = CliRunner().invoke(app, ["repair", "s", "--state-dir", str(mini.directory)])
    assert found.exit_code == 0 and f"{len(text(range(20)))} bytes" in found.output
    mini.open()
    assert post(address(mini), text(range(40, 50))) == 204
    drain_until(mini, lambda: len(output(mini)) >= 30)
    assert Counter(output(mini)) == rows(range(20, 50))
    assert mini.hub.streams["s"].ingress()["lost_bytes"] == len(text(range(20)))


def test_a_journal_that_is_gone_is_damage_and_what_comes_after_the_repair_is_read(mini: Mini) -> None:
    """A new journal would begin with address 0: no epoch would ever read what it takes."""
    create(mini, "http", listen="127.0.0.1:0")
    assert post(address(mini), text(range(20))) == 204
    drain_until(mini, lambda: len(output(mini)) == 20)
    mini.hub.close()
    journal = mini.directory / "streams" / "s" / "source" / "journal"
    shutil.rmtree(journal)
    mini.open()
    assert f"[{JournalDamaged.code}]" in mini.hub.streams["s"].status().problem
    mini.hub.close()
    assert list(repair_journal(mini.directory, "s")) == [str(journal)]
    assert repair_journal(mini.directory, "s") == {}, "nothing is damaged any more"
    mini.open()
    assert post(address(mini), text(range(20, 30))) == 204
    drain_until(mini, lambda: len(output(mini)) >= 30)
    assert Counter(output(mini)) == rows(range(30))
    assert mini.hub.streams["s"].ingress()["lost_bytes"] == 0


def test_a_journal_of_which_only_the_positions_of_consumers_are_left_is_damage(mini: Mini) -> None:
    create(mini, "http", listen="127.0.0.1:0")
    assert post(address(mini), text(range(20))) == 204
    drain_until(mini, lambda: len(output(mini)) == 20)
    assert post(address(mini), text(range(20, 30))) == 204
    mini.hub.close(drain=False)
    journal = mini.directory / "streams" / "s" / "source" / "journal"
    for path in [path for path in journal.iterdir() if path.is_file()]:
        path.unlink()
    assert list((journal / "consumers").glob("*.json"))
    mini.open()
    assert mini.hub.streams["s"].status().state == "dead"
    assert f"[{JournalDamaged.code}]" in mini.hub.streams["s"].status().problem
    mini.hub.close()
    assert list(repair_journal(mini.directory, "s")) == [str(journal)]
    assert repair_journal(mini.directory, "s") == {}, "nothing is damaged any more"
    mini.open()
    assert post(address(mini), text(range(30, 40))) == 204
    drain_until(mini, lambda: len(output(mini)) >= 30)
    assert Counter(output(mini)) == rows([*range(20), *range(30, 40)])


def remove_newest_log(journal: Path) -> None:
    max(journal.glob("ready-*")).unlink()


def remove_logs_and_segments(journal: Path) -> None:
    for path in journal.glob("*-*"):
        path.unlink()


REMOVALS: dict[str, Callable[[Path], object]] = {
    "the directory": shutil.rmtree,
    "the directory by another name": lambda journal: journal.rename(journal.with_name("elsewhere")),
    "the newest log": remove_newest_log,
    "logs and segments": remove_logs_and_segments,
}


@pytest.mark.parametrize(
    ("what", "planned"),
    [*((what, False) for what in REMOVALS), ("the directory", True), ("the newest log", True)],
)
def test_a_journal_that_is_removed_while_the_gateway_runs_is_damage_before_the_first_commit(
    mini: Mini, what: str, planned: bool
) -> None:
    create(mini, "http", listen="127.0.0.1:0")
    assert post(address(mini), text(range(20))) == 204
    if planned:
        mini.checkpoint.crash = "logged"
        with pytest.raises(Crash):
            until(lambda: mini.drain() and False, "an epoch is planned", 10)
    REMOVALS[what](mini.directory / "streams" / "s" / "source" / "journal")
    with pytest.raises(JournalDamaged):
        mini.hub.streams["s"].flush()
    assert JournalDamaged.code in mini.hub.streams["s"].ingress()["problem"]
    assert post(address(mini), text(range(20, 40))) == 429
    if not planned:
        mini.drain()
        assert mini.hub.streams["s"].status().state == "dead"
        assert f"[{JournalDamaged.code}]" in mini.hub.streams["s"].status().problem
    mini.crash()
    assert f"[{JournalDamaged.code}]" in mini.hub.streams["s"].status().problem
    mini.hub.close()
    assert CliRunner().invoke(app, ["repair", "s", "--state-dir", str(mini.directory)]).exit_code == 0
    assert "nothing is damaged" in CliRunner().invoke(app, ["repair", "s", "--state-dir", str(mini.directory)]).output
    mini.open()
    for first in range(40, 80, 10):
        assert post(address(mini), text(range(first, first + 10))) == 204
        until(lambda: mini.drain() and len(output(mini)) > 0, "rows are read", 20)
        if first == 50:
            mini.crash()
    drain_until(mini, lambda: len(output(mini)) >= 40)
    assert Counter(output(mini)) == rows(range(40, 80))


def test_nothing_is_acknowledged_after_the_journal_was_removed(mini: Mini) -> None:
    create(mini, "tcp", listen="127.0.0.1:0", acks="true")
    with socket.create_connection(address(mini), timeout=20) as client:
        client.sendall(text(range(20)))
        assert int(client.recv(100)) == len(text(range(20)))
        shutil.rmtree(mini.directory / "streams" / "s" / "source" / "journal")
        client.sendall(text(range(20, 40)))
        client.settimeout(1)
        with pytest.raises(TimeoutError):
            client.recv(100)
    assert JournalDamaged.code in mini.hub.streams["s"].ingress()["problem"]


def ingress_problem(mini: Mini) -> str:
    try:
        return str(mini.hub.streams["s"].ingress()["problem"])
    except GatewayFailed:
        return ""  # it has just died


def test_a_gateway_that_starts_again_does_not_begin_a_new_journal_where_one_was_removed(mini: Mini) -> None:
    create(mini, "http", listen="127.0.0.1:0")
    assert post(address(mini), text(range(20))) == 204
    gateway = mini.hub.streams["s"].ingress()["gateway_pid"]
    shutil.rmtree(mini.directory / "streams" / "s" / "source" / "journal")
    os.kill(gateway, signal.SIGKILL)
    until(lambda: JournalDamaged.code in ingress_problem(mini), "the new gateway refuses", 30)
    assert not list((mini.directory / "streams" / "s" / "source").glob("journal/*"))
    mini.drain()
    assert f"[{JournalDamaged.code}]" in mini.hub.streams["s"].status().problem


def test_only_the_owner_can_read_pushed_bytes_also_after_a_repair(mini: Mini) -> None:
    create(mini, "http", listen="127.0.0.1:0", token="s3cret")
    assert post(address(mini), text(range(20)), "bearer s3cret") == 204
    assert post(address(mini), text(range(20, 40)), "bearer s3cret") == 204
    mini.drain()
    mini.hub.close()
    ready = max((mini.directory / "streams" / "s" / "source" / "journal").glob("ready-*"))
    data = bytearray(ready.read_bytes())
    data[20] ^= 1
    ready.write_bytes(data)
    assert CliRunner().invoke(app, ["repair", "s", "--state-dir", str(mini.directory)]).exit_code == 0
    found = [p for p in mini.directory.rglob("*") if "checkpoint" not in p.parts]
    assert any(p.name == "damaged" for p in found)
    assert [p for p in (mini.directory, *found) if p.lstat().st_mode & 0o077] == []
    kept = [p for p in found if p.is_file() and b"s3cret" in p.read_bytes()]
    assert {p.name for p in kept} == {"secrets.json"}
