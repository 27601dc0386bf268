"""The postgres sink on the path of a user: declared by SQL, fed by epochs, with crashes, a server that goes away, a
password that nobody sees, and a savepoint."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import SinkAhead
from headrace.state.restore import restore
from headrace.stream.retries import RetryPolicy
from tests.connectors.postgresql import PASSWORD, PostgresServer, ServerMissing
from tests.connectors.servers import missing
from tests.e2e.support import put
from tests.shared.mini import Crash, Mini
from tests.shared.test_full_sinks import Disk
from tests.shared.test_secrets import holding

_tables = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    try:
        found = PostgresServer()
    except (ServerMissing, ImportError) as problem:
        missing(str(problem))
    yield found
    found.remove()


class Run:
    """A hub with a file stream and postgres sinks."""

    def __init__(self, server: PostgresServer, root: Path, patch: pytest.MonkeyPatch) -> None:
        patch.setattr("headrace.stream.supervisor.RetryPolicy", lambda: RetryPolicy(first=600, longest=600))
        self.server, self.root, self.mini = server, root, Mini(root / "state", patch)
        self.tables = {name: f"h{next(_tables)}_{name}" for name in ("plain", "totals")}
        (root / "in").mkdir()
        self.mini.hub.sql(self.script())

    def script(self, password: str = PASSWORD) -> str:
        written = password.replace("'", "''")
        common = f"type = 'postgres', url = '{self.server.url}', password = '{written}', create_table = 'true'"
        return f"""
            CREATE STREAM s (k STRING, v BIGINT) WITH (source = 'files', format = 'json', path = '{self.root}/in');
            CREATE SINK plain WITH ({common}, table = '{self.tables["plain"]}', retries = '0');
            CREATE SINK totals WITH ({common}, table = '{self.tables["totals"]}', mode = 'upsert', key = 'k');
            CREATE SINK copy WITH (type = 'jsonl', path = '{self.root}/copy');
            CREATE PIPELINE p INTO plain, copy AS SELECT k, v FROM s WHERE v % 3 <> 0;
            CREATE PIPELINE t INTO totals AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k EMIT CHANGES
        """

    def put(self, low: int, high: int) -> None:
        lines = [json.dumps({"k": f"k{i % 3}" if i % 5 else None, "v": i}) for i in range(low, high)]
        put(self.root / "in" / f"{low}.json", lines)

    def check(self, high: int) -> None:
        """The tables hold what rows 0 to `high` give, each once."""
        keyed = [(f"k{i % 3}" if i % 5 else None, i) for i in range(high)]
        wanted = sorted(((k, v) for k, v in keyed if v % 3), key=repr)
        assert sorted(self.rows("plain"), key=repr) == wanted
        copied = [json.loads(x) for f in (self.root / "copy").glob("part-*") for x in f.read_text().splitlines()]
        assert sorted(((r.get("k"), r["v"]) for r in copied), key=repr) == wanted
        groups = {k: [v for x, v in keyed if x == k] for k, _ in keyed}
        assert {k: (n, t) for k, n, t in self.rows("totals")} == {k: (len(v), sum(v)) for k, v in groups.items()}

    def rows(self, sink: str) -> list[tuple[Any, ...]]:
        return self.server.sql(f"SELECT * FROM {self.tables[sink]}")


@pytest.fixture
def run(server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    made = Run(server, tmp_path, monkeypatch)
    yield made
    made.mini.hub.close(drain=False)


@pytest.mark.parametrize("place", ["tasks", "lanes", "committed"])
def test_a_crash_at_any_place_of_an_epoch_leaves_every_row_once(run: Run, place: str) -> None:
    run.put(0, 20)
    run.mini.drain()
    run.mini.checkpoint.crash = place
    run.put(20, 40)
    with pytest.raises(Crash):
        run.mini.drain()
    run.mini.crash()
    run.mini.drain()
    run.check(40)


def test_a_server_that_restarts_makes_the_stream_wait_and_nothing_is_lost(run: Run) -> None:
    run.put(0, 20)
    run.mini.drain()
    run.server.stop()
    run.put(20, 40)
    run.mini.drain()
    status = run.mini.hub.streams["s"].status()
    assert status.state == "retrying" and "SINK_UNAVAILABLE" in str(status)
    run.server.start()
    run.mini.hub.runtime("s").supervisor.try_now()
    run.mini.drain()
    run.check(40)


def test_a_right_that_is_withdrawn_makes_the_stream_wait_and_nothing_is_lost(run: Run) -> None:
    run.put(0, 20)
    run.mini.drain()  # makes the ledger
    server, table = run.server, f"h{next(_tables)}_weak"
    server.sql(f"CREATE TABLE {table} (k text, v bigint)")
    server.sql(f"CREATE ROLE {table} LOGIN PASSWORD 'w'")
    server.sql(f"GRANT ALL ON {table}, headrace_epochs TO {table}")
    run.mini.hub.sql(
        f"CREATE SINK weak WITH (type = 'postgres', url = '{server.url.replace('tester', table)}', password = 'w', "
        f"table = '{table}', retries = '0'); CREATE PIPELINE w INTO weak AS SELECT k, v FROM s"
    )
    run.put(20, 40)
    run.mini.drain()
    server.sql(f"REVOKE INSERT ON {table} FROM {table}")
    run.put(40, 60)
    run.mini.drain()
    for _ in range(2):
        status = run.mini.hub.streams["s"].status()
        assert status.state == "retrying" and "SINK_UNAVAILABLE" in str(status)
        run.mini.hub.runtime("s").supervisor.try_now()
        run.mini.drain()
    run.put(60, 80)
    server.sql(f"GRANT INSERT ON {table} TO {table}")
    run.mini.hub.runtime("s").supervisor.try_now()
    run.mini.drain()
    run.check(80)
    assert sorted(v for _, v in server.sql(f"SELECT * FROM {table}")) == list(range(20, 80))


@pytest.mark.parametrize("place", ["stage", "commit"])
def test_a_full_disk_under_the_staging_directory_makes_the_stream_wait_and_nothing_is_lost(
    run: Run, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.put(0, 20)
    run.mini.drain()
    disk = Disk(monkeypatch)
    disk.place, disk.full = place, {"staging"}
    run.put(20, 40)
    run.mini.drain()
    for _ in range(2):
        status = run.mini.hub.streams["s"].status()
        assert status.state == "retrying" and "SINK_UNAVAILABLE" in str(status)
        assert not list(run.root.rglob("*.staged")), "tries must not fill the disk"
        run.mini.hub.runtime("s").supervisor.try_now()
        run.mini.drain()
    disk.full = set()
    run.mini.hub.runtime("s").supervisor.try_now()
    run.mini.drain()
    run.check(40)


def test_a_table_that_is_changed_stops_its_pipeline_and_the_epoch_is_written_when_it_fits_again(run: Run) -> None:
    run.put(0, 20)
    run.mini.drain()
    run.server.sql(f"ALTER TABLE {run.tables['plain']} RENAME v TO w")
    run.put(20, 40)
    run.mini.drain()
    status = run.mini.hub.pipelines["p"].status()
    assert status.state == "failed" and "SINK_MISMATCH" in status.error
    run.server.sql(f"ALTER TABLE {run.tables['plain']} RENAME w TO v")
    run.mini.hub.sql("START PIPELINE p")
    run.mini.drain()
    run.check(40)


def test_the_password_is_in_one_file_and_in_nothing_that_is_shown_or_sent_to_tasks(run: Run) -> None:
    run.put(0, 20)
    run.mini.drain()
    assert holding(run.mini.directory, PASSWORD) == {"secrets.json"}
    questions = ("SHOW CREATE SINK plain", "DESCRIBE SINK plain", "EXPLAIN PIPELINE p", "EXPLAIN JSON PIPELINE p")
    for question in questions:
        shown = run.mini.hub.sql(question)[0].render()
        assert PASSWORD not in shown and "secret:" not in shown
    assert "'***'" in run.mini.hub.sql("SHOW CREATE SINK plain")[0].render()
    assert "exactly once" in run.mini.hub.sql("EXPLAIN PIPELINE p")[0].render()
    run.mini.hub.sql(run.script())  # the same script again changes nothing
    run.mini.crash()
    run.put(20, 40)
    run.mini.drain()
    run.check(40)


def test_a_restored_savepoint_rewinds_the_table_and_writes_the_rows_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.put(0, 20)
    run.mini.drain()
    run.mini.hub.sql("STOP PIPELINE p; STOP PIPELINE t")  # the miniature cannot be cut while it runs
    saved = run.mini.hub.savepoint("monday")
    kept = run.mini.checkpoint.end, dict(run.mini.checkpoint.state)
    run.mini.hub.sql("START PIPELINE p; START PIPELINE t")
    run.put(20, 40)
    run.mini.drain()
    run.mini.hub.close(drain=False)
    with pytest.raises(SinkAhead) as caught:
        restore(saved, tmp_path / "restored")
    assert caught.value.params["sinks"] == ["copy", "plain", "totals"]
    restore(saved, tmp_path / "restored", rewind=True)
    assert len(run.rows("plain")) == sum(1 for i in range(20) if i % 3)
    run.mini.directory = tmp_path / "restored"
    run.mini.checkpoint.end, run.mini.checkpoint.state = kept
    run.mini.open()
    run.mini.hub.sql("START PIPELINE p; START PIPELINE t")
    run.mini.drain()
    assert len(run.rows("plain")) == sum(1 for i in range(40) if i % 3)


def test_a_restore_finds_what_a_newer_pipeline_has_written_into_the_table(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.put(0, 20)
    run.mini.drain()
    run.mini.hub.sql("STOP PIPELINE p; DROP PIPELINE t")
    saved = run.mini.hub.savepoint("monday")
    kept = run.mini.checkpoint.end, dict(run.mini.checkpoint.state)
    run.mini.hub.sql("DROP PIPELINE p; CREATE PIPELINE q INTO plain AS SELECT k, v FROM s WHERE v % 3 <> 0")
    run.put(20, 40)
    run.mini.drain()
    run.mini.hub.close(drain=False)
    assert len(run.rows("plain")) == sum(1 for i in range(40) if i % 3)
    with pytest.raises(SinkAhead) as caught:
        restore(saved, tmp_path / "restored")
    assert caught.value.params["sinks"] == ["plain"]
    restore(saved, tmp_path / "restored", rewind=True)
    assert len(run.rows("plain")) == sum(1 for i in range(20) if i % 3)
    run.mini.directory = tmp_path / "restored"
    run.mini.checkpoint.end, run.mini.checkpoint.state = kept
    run.mini.open()
    run.mini.hub.sql("START PIPELINE p")
    run.mini.drain()
    assert len(run.rows("plain")) == sum(1 for i in range(40) if i % 3)
