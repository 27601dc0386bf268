"""The life of a pipeline on the dedicated host: it ends and begins as the others do, its failures are its own, a slow
one is handled as its option says, and nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.errors import HeadraceError, SinkAhead
from headrace.sinks.feed_log import FeedLog, feed_directory
from headrace.spark.dedicated_committer import DedicatedCommitter
from headrace.state.checkpoint import CHECKPOINT
from headrace.state.dedicated_state import dedicated_home
from headrace.state.restore import restore
from headrace.state.spark_log import newest_commit
from tests.e2e.kills import LONG
from tests.e2e.support import put, until
from tests.e2e.test_recovery import descendants
from tests.e2e.two_streams import START, Streams, found, lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


pytestmark = [pytest.mark.spark, pytest.mark.slow]
WINDOWS = "SELECT unix_seconds(window.start) AS s, count(*) AS n FROM a {where} GROUP BY window(ts, '10 seconds')"


def test_stop_start_failure_drop_and_a_filter_that_passes_nothing(streams: Streams) -> None:
    def raises(i: int) -> int:
        if i == 33:
            raise ValueError(f"no {i}")
        return i

    streams.session.udf.register("raises", raises, "long")
    with headrace.connect(streams.base / "state", spark=streams.session) as hub:
        hub.sql(streams.script())
        hub.sql(
            f"CREATE PIPELINE w INTO m WITH (host = 'dedicated') AS {WINDOWS.format(where='')};"
            f"CREATE PIPELINE few INTO m WITH (host = 'dedicated') AS {WINDOWS.format(where='WHERE id < 3')};"
            "CREATE PIPELINE j INTO m AS SELECT a.id, b.k FROM a JOIN b ON a.id = b.id;"
            "CREATE PIPELINE bad INTO m AS SELECT raises(a.id) AS r, b.k FROM a JOIN b ON a.id = b.id"
        )
        streams.give(hub, "a", range(0, 25))
        streams.give(hub, "b", range(5, 8))
        for name in "ab":
            hub.streams[name].sync(300)
        assert found(hub, "w") == [(int(START.timestamp()) + s, 10) for s in (0, 10)]
        assert found(hub, "few") == [(int(START.timestamp()), 3)], "the rows that it dropped moved its watermark"
        assert found(hub, "j") == [(5, "k2"), (6, "k0"), (7, "k1")]
        with pytest.raises(HeadraceError) as caught:
            hub.sql("DROP STREAM b")
        assert caught.value.code == "IN_USE"
        # what EXPLAIN prints is there: a feed for each stream, and a streaming query
        (answer,) = hub.sql("EXPLAIN JSON PIPELINE j")
        operators = [o["operator"] for o in json.loads(answer.text)["physical"]]
        wanted = ("PhysicalFeed", 2), ("PhysicalBarrier", 1), ("PhysicalDedicatedQuery", 1)
        assert [(name, operators.count(name)) for name, _ in wanted] == list(wanted)
        definition = hub.record("j").definition
        directories = [streams.base / "state" / "streams" / s for s in "ab"]
        assert all(FeedLog(feed_directory(d, definition.instance)).end() > 0 for d in directories)
        assert newest_commit(dedicated_home(directories[0], definition) / "0" / CHECKPOINT) >= 0
        # a row that is late for both windows is counted
        streams.give(hub, "a", range(2, 3))
        hub.streams["a"].sync(300)
        assert [hub.pipelines[name].status().late for name in ("w", "few", "j")] == [1, 1, 0]
        # a stop that keeps the windows, and one that drops the state
        hub.sql("STOP PIPELINE w; STOP PIPELINE few NOW")
        assert hub.pipelines["w"].status().state == "stopped"
        streams.give(hub, "a", range(25, 27))  # nobody of them sees these
        hub.sql("START PIPELINE w; START PIPELINE few")
        streams.give(hub, "a", range(27, 45))
        streams.give(hub, "b", range(33, 35))
        for name in "ab":
            hub.streams[name].sync(300)
        assert found(hub, "w")[-1] == (int(START.timestamp()) + 30, 10)
        assert (int(START.timestamp()) + 20, 8) in found(hub, "w"), "five rows from before the stop, three after it"
        assert hub.pipelines["w"].status().missed_rows == 2
        # the failure of one is its own, and has the reason
        status = hub.pipelines["bad"].status
        error = str(until(lambda: status().state == "failed" and status().error, "bad fails", 300))
        assert "EVALUATION_FAILED" in error and "raises" in error
        assert found(hub, "j")[-1] == (7, "k1") or (34, "k1") in found(hub, "j")
        for name in ("w", "few", "j", "bad"):
            hub.sql(f"DROP PIPELINE {name}")
        assert streams.left() == []


def test_a_worker_that_is_killed_once_fails_no_pipeline(streams: Streams) -> None:
    killed = streams.base / "killed"

    def dies_once(i: int) -> int:
        if i == 6 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return i

    streams.session.udf.register("dies_once", dies_once, "long")
    with headrace.connect(streams.base / "state", spark=streams.session) as hub:
        hub.sql(streams.script())
        hub.sql("CREATE PIPELINE j INTO m AS SELECT dies_once(a.id) AS id, b.k FROM a JOIN b ON a.id = b.id")
        streams.give(hub, "a", range(0, 25))
        streams.give(hub, "b", range(5, 8))
        for name in "ab":
            hub.streams[name].sync(300)
        assert killed.exists()
        assert found(hub, "j") == [(5, "k2"), (6, "k0"), (7, "k1")]
        assert hub.pipelines["j"].status().state == "running"


def test_a_variable_keeps_the_value_that_it_had_when_the_pipeline_was_created(streams: Streams) -> None:
    streams.session.sql("DECLARE VARIABLE least BIGINT DEFAULT 3")
    with headrace.connect(streams.base / "state", spark=streams.session) as hub:
        hub.sql(streams.script())
        hub.sql("CREATE PIPELINE j INTO m AS SELECT a.id, least FROM a JOIN b ON a.id = b.id WHERE a.id >= least")
        streams.session.sql("SET VAR least = 100")
        for name in "ab":
            streams.give(hub, name, range(0, 5))
        for name in "ab":
            hub.streams[name].sync(300)
        assert found(hub, "j") == [(3, 3), (4, 3)]
    # The state of the join was made with 3, so a session that does not know the variable makes no difference.
    with headrace.connect(streams.base / "state", spark=streams.session.newSession()) as hub:
        for name in "ab":
            streams.give(hub, name, range(1, 7))
        until(lambda: (6, 3) in found(hub, "j"), "the query goes on", 300)
        assert {row[0] for row in found(hub, "j")} == {3, 4, 5, 6}, "also with rows from before"
    again = streams.session.newSession()
    again.sql("DECLARE VARIABLE least BIGINT DEFAULT 8")
    with headrace.connect(streams.base / "state", spark=again) as hub:
        hub.sql(
            "CREATE OR REPLACE PIPELINE j INTO m AS SELECT a.id, least FROM a JOIN b ON a.id = b.id WHERE a.id >= least"
        )
        for name in "ab":
            streams.give(hub, name, range(7, 10))
        until(lambda: found(hub, "j") == [(8, 8), (9, 8)], "a new pipeline takes the new value", 300)


def test_a_query_that_dies_while_it_reads_the_end_closes_all_windows(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, states, out = DedicatedCommitter.commit, list[str](), streams.base / "out"
    put(streams.base / "a" / "0.json", lines(range(45)))
    with headrace.connect(streams.base / "state", spark=streams.session) as hub:
        hub.sql(f"{streams.script()}; CREATE SINK f WITH (type = 'jsonl', path = '{out}')")
        hub.sql(f"CREATE PIPELINE w INTO f WITH (host = 'dedicated') AS {WINDOWS.format(where='')}")
        definition = hub.record("w").definition
        directory = streams.base / "state" / "streams" / "a"
        feed = FeedLog(feed_directory(directory, definition.instance))
        checkpoint = dedicated_home(directory, definition) / "0" / CHECKPOINT

        def dying(self: DedicatedCommitter, rows: DataFrame, batch: int, pipeline: Any, query: Any) -> None:
            """Commit, and die if that was the end of the input: first before Spark has logged the batch, then when it
            has, and has no batch yet that closes the windows."""
            commit(self, rows, batch, pipeline, query)
            at = self.read()["a"]  # Spark begins with a batch without rows
            if len(states) < 2 and at and feed.epoch(at - 1).ending:
                states.append(hub.pipelines["w"].status().state)
                if len(states) == 1:
                    raise RuntimeError("the end is in the sink")
                threading.Thread(target=stop_when_logged, args=(batch, query)).start()

        def stop_when_logged(batch: int, query: Any) -> None:
            until(lambda: newest_commit(checkpoint) >= batch, "Spark has logged the end", 300)
            query.stop()

        monkeypatch.setattr(DedicatedCommitter, "commit", dying)
        assert hub.wait_until_end(600)
        assert hub.pipelines["w"].status().state == "finished"
        hub.savepoint("end")
    assert len(states) == 2 and "finished" not in states, "it has not finished when its stream has"
    begin = int(START.timestamp())
    wanted = [(begin + s, 10) for s in (0, 10, 20, 30)] + [(begin + 40, 5)]
    assert written(out) == wanted
    # more input after the end is read by the next turn
    put(streams.base / "a" / "1.json", lines(range(50, 52)))
    with headrace.connect(streams.base / "state", spark=streams.session) as hub:
        assert hub.wait_until_end(600)
    assert written(out) == [*wanted, (begin + 50, 2)]
    # a savepoint from before that turn knows its output
    taken, restored = streams.base / "state" / "savepoints" / "end", streams.base / "restored"
    with pytest.raises(SinkAhead):
        restore(taken, restored)
    restore(taken, restored, rewind=True)
    assert written(out) == wanted
    with headrace.connect(restored, spark=streams.session) as hub:
        assert hub.wait_until_end(600)
    assert written(out) == [*wanted, (begin + 50, 2)]


def written(out: Path) -> list[tuple[int, int]]:
    """The windows in a sink."""
    rows = [json.loads(line) for part in out.glob("part-*") for line in part.read_text().splitlines()]
    return sorted((row["s"], row["n"]) for row in rows)


@pytest.mark.parametrize("strategy", ["drop", pytest.param("pause", marks=LONG), pytest.param("spill", marks=LONG)])
def test_a_slow_query_is_handled_as_its_option_says(streams: Streams, strategy: str) -> None:
    gate = streams.base / "gate"
    gate.touch()

    def slow(i: int) -> int:
        while gate.exists():
            time.sleep(0.05)
        return i

    streams.session.udf.register("slow", slow, "long")
    limit = "3kb" if strategy != "spill" else "1mb"
    with headrace.connect(streams.base / "state", spark=streams.session) as hub:
        hub.sql(streams.script())
        hub.sql(
            "CREATE PIPELINE neighbour INTO m AS SELECT id FROM a;"
            f"CREATE PIPELINE late INTO m WITH (host = 'dedicated', backpressure = '{strategy}', "
            f"feed_limit = '{limit}') AS SELECT slow(id) AS id, k FROM a"
        )
        streams.give(hub, "a", range(0, 20))
        until(lambda: hub.pipelines["late"].status().waiting_rows == 20, "the first batch has begun", 300)
        if strategy == "pause":
            put(streams.base / "a" / "x1.json", ['{"id": 1, "k": "' + "x" * 4000 + '", "ts": "2026-01-01T00:01:00Z"}'])
            until(lambda: hub.streams["a"].status().paused_by == ["late"], "the stream names who pauses it", 300)
            until(lambda: hub.streams["a"].status().rows == 21, "the epoch that filled the feed is counted", 300)
            put(streams.base / "a" / "x2.json", ['{"id": 2, "k": "y", "ts": "2026-01-01T00:01:00Z"}'])
            time.sleep(1)
            assert hub.streams["a"].status().rows == 21, "a paused stream reads nothing"
        else:
            for i in range(1, 6):
                streams.give(hub, "a", range(20 * i, 20 * i + 20), pad=100)
            assert found(hub, "neighbour") == sorted([(i,) for i in range(120)], key=repr), "its neighbour goes on"
        gate.unlink()
        given = 22 if strategy == "pause" else 120
        until(lambda: hub.streams["a"].status().rows == given, "all rows are read", 300)
        hub.streams["a"].sync(300)
        status = hub.pipelines["late"].status()
        assert status.rows_out + status.dropped_rows == given
        assert (status.dropped_rows > 0) == (strategy == "drop")
        assert len(found(hub, "late")) == status.rows_out
        assert status.waiting_rows == 0 and hub.streams["a"].status().paused_by == []


@LONG
def test_a_savepoint_of_a_join_restores_to_one_consistent_state(streams: Streams) -> None:
    query = "SELECT a.id, b.k FROM a JOIN b ON a.id = b.id"
    out = streams.base / "out"
    with headrace.connect(streams.base / "state", spark=streams.session) as hub:
        hub.sql(streams.script())
        hub.sql(f"CREATE SINK f WITH (type = 'jsonl', path = '{out}'); CREATE PIPELINE j INTO f AS {query}")
        streams.give(hub, "a", range(0, 10))
        streams.give(hub, "b", range(0, 5))
        with pytest.raises(HeadraceError) as caught:
            hub.sql("SAVEPOINT half OF STREAM a")
        assert caught.value.code == "SAVEPOINT_TOO_SMALL"
        hub.savepoint("whole", timeout=300)
        streams.give(hub, "b", range(5, 7))
        hub.streams["b"].sync(300)
    lines = sorted(line for part in out.glob("part-*") for line in part.read_text().splitlines())
    assert len(lines) == 7
    restore(streams.base / "state" / "savepoints" / "whole", streams.base / "again", rewind=True)
    with headrace.connect(streams.base / "again", spark=streams.session) as hub:
        until(lambda: hub.streams["b"].status().rows == 7, "the rest is read again", 300)
        hub.streams["b"].sync(300)
        streams.give(hub, "b", range(7, 10))
        hub.streams["b"].sync(300)
    lines = sorted(line for part in out.glob("part-*") for line in part.read_text().splitlines())
    assert len(lines) == 10 and len(set(lines)) == 10


@LONG
def test_late_rows_of_a_join_are_dropped_and_counted_and_outer_rows_come_once(streams: Streams) -> None:
    times = "b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts + INTERVAL 5 SECONDS"
    query = f"SELECT a.id, b.id AS other FROM a FULL OUTER JOIN b ON a.id = b.id AND {times}"
    with headrace.connect(streams.base / "state", spark=streams.session) as hub:
        hub.sql(streams.script())
        hub.sql(f"CREATE PIPELINE j INTO m AS {query}")
        for given in ({"a": range(0, 20), "b": range(5, 25)}, {"a": range(100, 102), "b": range(100, 101)}):
            for name, seconds in given.items():
                streams.give(hub, name, seconds)
            for name in "ab":
                hub.streams[name].sync(300)
        # What Spark batch says about the rows that are in time. The outer rows of the newest ones are not final yet.
        for name in "ab":
            rows = streams.session.read.schema("id BIGINT, k STRING, ts TIMESTAMP").json(str(streams.base / name))
            rows.createOrReplaceTempView(name)
        wanted = [tuple(r) for r in streams.session.sql(query).collect() if tuple(r) != (101, None)]
        for name, seconds in {"a": range(22, 23), "b": range(3, 4)}.items():  # each would match a row of the other
            streams.give(hub, name, seconds)
            hub.streams[name].sync(300)
        until(lambda: hub.pipelines["j"].status().late == 2, "late rows of both sides are counted")
        assert found(hub, "j") == sorted(wanted, key=repr)


def test_a_query_goes_on_after_the_process_that_forks_workers_was_killed_while_it_was_idle(streams: Streams) -> None:
    with headrace.connect(streams.base / "state", spark=streams.session) as hub:
        hub.sql(streams.script())
        hub.sql(f"CREATE SINK kept WITH (type = 'jsonl', path = '{streams.base / 'kept'}')")
        hub.sql("CREATE PIPELINE own INTO kept WITH (host = 'dedicated') AS SELECT id, k FROM a")
        streams.give(hub, "a", range(0, 10))
        hub.streams["a"].sync(300)
        # Spark meets the dead idle workers one by one, and fails to tell the process that it has forked them from.
        for pid, command in descendants(os.getpid()):
            if "-m headrace.spark.daemon" in command:
                with contextlib.suppress(ProcessLookupError):  # the first one ends the others
                    os.kill(pid, signal.SIGKILL)
        streams.give(hub, "a", range(10, 20))
        hub.streams["a"].sync(300)
        assert hub.pipelines["own"].status().state == "running"
        written = [file.read_text().splitlines() for file in (streams.base / "kept").glob("*.jsonl")]
        assert sorted(json.loads(line)["id"] for lines in written for line in lines) == list(range(20))
