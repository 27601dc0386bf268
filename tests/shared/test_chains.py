"""Chains: pipelines that read the output of other pipelines."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import (
    AlreadyExists,
    CyclicStreams,
    HeadraceError,
    InUse,
    SchemaChanged,
    StreamFailed,
    UnfinishedRows,
    UnknownColumn,
    UnknownOption,
    UnknownPipeline,
)
from headrace.state.restore import restore
from tests.e2e.support import put
from tests.shared.chain import Chain, at, record
from tests.shared.mini import Crash
from tests.strategies import examples

RAW = """
CREATE STREAM raw (ts TIMESTAMP, k STRING, v BIGINT, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)
WITH (source = 'files', format = 'json', path = '{path}');
CREATE SINK o WITH (type = 'kept'); CREATE SINK p WITH (type = 'kept');
"""
SUMS = """
CREATE PIPELINE per_second INTO STREAM seconds AS
SELECT window.end AS t, k, sum(v) AS s FROM raw GROUP BY window(ts, '1 second'), k;
CREATE PIPELINE per_minute INTO o AS
SELECT window.start AS m, k, max(s) AS top, count(*) AS n FROM seconds GROUP BY window(t, '1 minute'), k
"""


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chain:
    (tmp_path / "in").mkdir()
    made = Chain(tmp_path / "state", monkeypatch)
    made.sql(RAW.format(path=tmp_path / "in"))
    return made


def feed(chain: Chain, name: str, *lines: str) -> None:
    put(chain.directory.parent / "in" / name, lines)


def per_minute(rows: list[tuple[float, str, int]], width: float = 60) -> Counter[Any]:
    """The oracle of SUMS: the largest sum of a second in each minute, as (minute, key, top, seconds)."""
    seconds: dict[tuple[int, str], int] = {}
    for moment, key, value in rows:
        group = (int(moment) + 1, key)
        seconds[group] = seconds.get(group, 0) + value
    minutes: dict[tuple[float, str], list[int]] = {}
    for (second, key), total in seconds.items():
        minutes.setdefault((second // width * width, key), []).append(total)
    return Counter((at(m), k, max(v), len(v)) for (m, k), v in minutes.items())


def some_rows(count: int) -> list[tuple[float, str, int]]:
    return [(i * 0.75, "ab"[i % 2], i % 13) for i in range(count)]


def lines(rows: list[tuple[float, str, int]]) -> list[str]:
    return [record(moment, k=key, v=value) for moment, key, value in rows]


def test_an_aggregate_of_an_aggregate_is_that_of_the_rows(chain: Chain) -> None:
    chain.sql(SUMS)
    rows = some_rows(300)
    for part in range(10):
        feed(chain, f"{part}.json", *lines(rows[part * 30 : part * 30 + 30]))
        chain.drain()
    assert chain.hub.wait_until_end(60)
    assert chain.bag("per_minute") == per_minute(rows)


def test_a_filter_that_passes_nothing_still_closes_windows_down_the_chain(chain: Chain) -> None:
    """The watermark travels with the epochs: the second pipeline sees rows of one device, and then none."""
    chain.sql(
        """CREATE PIPELINE only_a INTO STREAM a AS SELECT ts, k, v FROM raw WHERE k = 'a';
        CREATE PIPELINE counts INTO o AS
        SELECT window.start AS m, count(*) AS n FROM a GROUP BY window(ts, '10 seconds')"""
    )
    feed(chain, "1", record(1, k="a", v=1), record(2, k="a", v=1))
    chain.drain()
    assert chain.rows("counts") == []
    feed(chain, "2", record(14.9, k="b", v=1))
    chain.drain()
    assert chain.rows("counts") == [], "the delay of the watermark is inherited"
    feed(chain, "3", record(15, k="b", v=1))
    chain.drain()
    assert chain.rows("counts") == [(at(0), 2)]


def test_late_rows_are_late_in_the_stream_that_inherits_the_watermark(chain: Chain) -> None:
    chain.sql(
        """CREATE PIPELINE clean INTO STREAM good, p AS SELECT ts, k, v FROM raw WHERE v >= 0;
        CREATE PIPELINE counts INTO o AS
        SELECT window.start AS m, count(*) AS n FROM good GROUP BY window(ts, '10 seconds')"""
    )
    feed(chain, "1", record(1, k="a", v=1), record(30, k="a", v=1))
    chain.drain()
    feed(chain, "2", record(2, k="late", v=1), record(31, k="a", v=1))
    chain.drain()
    assert chain.hub.wait_until_end(60)
    assert chain.bag("counts") == Counter({(at(0), 1): 1, (at(30), 2): 1})
    assert chain.hub.pipelines["counts"].status().late == 1
    assert len(chain.rows("clean")) == 4, "the other sink of the pipeline has all rows"


def test_one_cleaning_pipeline_serves_many_and_an_existing_pipeline_becomes_a_stream(chain: Chain) -> None:
    chain.sql("CREATE PIPELINE clean INTO p AS SELECT ts, k, v + 1 AS w FROM raw WHERE v IS NOT NULL")
    feed(chain, "1", record(1, k="a", v=1))
    chain.drain()
    chain.sql("CREATE STREAM good AS PIPELINE clean WITH (max_rows = 10)")
    assert chain.hub.pipelines["clean"].status().state == "running"
    chain.sql("CREATE PIPELINE big INTO o AS SELECT k, w FROM good WHERE w > 5")
    chain.sql(
        "CREATE VIEW small AS SELECT k, w FROM good WHERE w <= 5; CREATE PIPELINE s INTO o AS SELECT * FROM small"
    )
    feed(chain, "2", record(2, k="a", v=2), record(3, k="b", v=None), record(4, k="c", v=9))
    chain.drain()
    assert (chain.rows("big"), chain.rows("s")) == ([("c", 10)], [("a", 3)])
    assert len(chain.rows("clean")) == 3
    described = str(chain.sql("DESCRIBE STREAM good")[0].render())
    assert "pipeline" in described and "clean" in described
    assert chain.sql("CREATE STREAM good AS PIPELINE clean WITH (max_rows = 10)")[0].text.endswith("as declared")
    assert chain.hub.streams["good"].status().decoding_columns == ["ts", "k", "w"]


def test_only_the_columns_that_readers_need_are_decoded(chain: Chain) -> None:
    chain.sql("CREATE PIPELINE clean INTO STREAM good AS SELECT ts, k, v, v * 2 AS w FROM raw")
    chain.sql("CREATE PIPELINE one INTO o AS SELECT w FROM good")
    feed(chain, "1", record(1, k="a", v=1))
    chain.drain()
    assert chain.rows("one") == [(2,)]
    assert chain.hub.streams["good"].status().decoding_columns == ["ts", "w"]


def test_sessions_over_windows_and_a_chain_of_three(chain: Chain) -> None:
    chain.sql(
        """CREATE PIPELINE seconds INTO STREAM s1 AS
        SELECT window_end AS e, k, count(*) AS n FROM TUMBLE(TABLE raw, DESCRIPTOR(ts), INTERVAL 1 SECOND)
        GROUP BY window_start, window_end, k;
        CREATE PIPELINE busy INTO STREAM s2 AS SELECT e, k, n FROM s1 WHERE n > 1;
        CREATE PIPELINE sessions INTO o AS
        SELECT session_window.start AS b, session_window.end AS e, k, sum(n) AS n FROM s2
        GROUP BY session_window(e, '5 seconds'), k"""
    )
    moments = [1, 1.5, 2, 2.5, 3.2, 3.3, 20, 20.1, 40]
    feed(chain, "1", *(record(m, k="a", v=1) for m in moments))
    chain.drain()
    # Second 1 has two rows, its end is 2; and so on. The sessions of busy seconds are 2..4 and 21.
    assert chain.rows("sessions") == [(at(2), at(9), "a", 6), (at(21), at(26), "a", 2)]


@pytest.mark.parametrize("place", ["logged", "tasks", "lanes", "committed"])
@pytest.mark.parametrize("victim", ["raw", "seconds"])
def test_a_crash_anywhere_in_a_chain_loses_and_doubles_nothing(chain: Chain, victim: str, place: str) -> None:
    chain.sql(SUMS)
    rows = some_rows(240)
    for part in range(8):
        feed(chain, f"{part}.json", *lines(rows[part * 30 : part * 30 + 30]))
        chain.checkpoint(victim).crash = place if part % 2 else ""
        try:
            chain.drain()
        except Crash:
            chain.crash()
            chain.drain()
    assert chain.hub.wait_until_end(60)
    assert chain.bag("per_minute") == per_minute(rows)


def test_what_the_readers_have_committed_is_deleted(chain: Chain) -> None:
    chain.sql(SUMS)
    rows = some_rows(400)
    for part in range(10):
        feed(chain, f"{part}.json", *lines(rows[part * 40 : part * 40 + 40]))
        chain.drain()
    kept = [p for p in (chain.directory / "streams" / "seconds" / "input").rglob("*") if p.is_file()]
    assert 0 < len(kept) < 8, kept


def test_a_replaced_pipeline_keeps_feeding_the_stream(chain: Chain) -> None:
    chain.sql("CREATE PIPELINE clean INTO STREAM good, p AS SELECT ts, k, v FROM raw")
    chain.sql("CREATE PIPELINE all_of_it INTO o AS SELECT k, v FROM good")
    feed(chain, "1", record(1, k="a", v=1))
    chain.drain()
    chain.sql("CREATE OR REPLACE PIPELINE clean INTO p AS SELECT ts, upper(k) AS k, v * 10 AS v FROM raw")
    feed(chain, "2", record(2, k="b", v=2))
    chain.drain()
    assert chain.rows("all_of_it") == [("a", 1), ("B", 20)]
    with pytest.raises(SchemaChanged):
        chain.sql("CREATE OR REPLACE PIPELINE clean INTO p AS SELECT ts, k FROM raw")
    with pytest.raises(SchemaChanged):
        chain.sql("CREATE OR REPLACE PIPELINE clean INTO p AS SELECT ts + INTERVAL 1 SECOND AS ts, k, v FROM raw")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("CREATE PIPELINE x INTO STREAM raw AS SELECT ts FROM raw", AlreadyExists),
        ("CREATE PIPELINE x INTO STREAM y AS SELECT ts FROM y", HeadraceError),
        ("CREATE PIPELINE x INTO STREAM y AS SELECT k, count(*) AS n FROM raw GROUP BY k EMIT CHANGES", UnfinishedRows),
        ("CREATE PIPELINE x INTO STREAM y (WATERMARK FOR q AS q) AS SELECT ts FROM raw", UnknownColumn),
        ("CREATE STREAM y AS PIPELINE nobody", UnknownPipeline),
        ("CREATE STREAM y AS PIPELINE clean WITH (path = 'x')", UnknownOption),
        ("CREATE STREAM y AS PIPELINE clean WITH (pipeline = 'x')", UnknownOption),
        ("CREATE OR REPLACE PIPELINE clean INTO STREAM good AS SELECT ts, k, v FROM good", CyclicStreams),
        ("CREATE OR REPLACE PIPELINE clean INTO STREAM good AS SELECT ts, k, v FROM better", CyclicStreams),
        ("DROP PIPELINE clean", InUse),
        ("DROP STREAM good", InUse),
        ("DROP STREAM better", InUse),
        ("CREATE PIPELINE x INTO STREAM good AS SELECT ts, k, v FROM raw", AlreadyExists),
    ],
)
def test_what_makes_no_chain_is_refused_with_a_code(chain: Chain, text: str, error: type[HeadraceError]) -> None:
    chain.sql("CREATE PIPELINE clean INTO STREAM good AS SELECT ts, k, v FROM raw")
    chain.sql("CREATE PIPELINE more INTO STREAM better AS SELECT ts, k, v FROM good")
    before = chain.hub.catalog
    with pytest.raises(error):
        chain.sql(text)
    assert chain.hub.catalog == before


def test_the_advice_about_a_stream_of_output_works_and_dropping_it_warns_of_no_doubled_rows(chain: Chain) -> None:
    chain.sql("CREATE PIPELINE clean INTO STREAM good AS SELECT ts, k, v FROM raw")
    other = "CREATE PIPELINE x INTO STREAM good AS SELECT ts, k, v FROM raw"
    with pytest.raises(AlreadyExists) as taken:
        chain.sql(other)
    assert "DROP PIPELINE clean" in taken.value.advice
    (answer,) = chain.sql("DROP PIPELINE clean")
    assert answer.text == "dropped pipeline clean and stream good"
    assert not any("a second time" in warning for warning in answer.warnings)
    chain.sql(other)


def test_dropping_leaves_nothing_on_disk_and_cascade_drops_the_readers(chain: Chain) -> None:
    streams = chain.directory / "streams"
    chain.sql("CREATE PIPELINE clean INTO p, STREAM good AS SELECT ts, k, v FROM raw")
    chain.sql("CREATE PIPELINE more INTO STREAM better AS SELECT ts, k, v FROM good")
    chain.sql("CREATE VIEW w AS SELECT k FROM better; CREATE PIPELINE last INTO o AS SELECT k FROM w")
    feed(chain, "1", record(1, k="a", v=1))
    chain.drain()
    assert {p.name for p in streams.iterdir()} == {"raw", "good", "better"}
    (answer,) = chain.sql("DROP PIPELINE more CASCADE")
    assert answer.text == "dropped pipeline more and pipeline last, view w, stream better"
    assert answer.warnings == ("Rows of stream better that were not read are deleted.",)
    assert {p.name for p in streams.iterdir()} == {"raw", "good"}
    chain.sql("DROP STREAM good")
    feed(chain, "2", record(2, k="b", v=1))
    chain.drain()
    assert {p.name for p in streams.iterdir()} == {"raw"}
    assert [row[1] for row in chain.rows("clean")] == ["a", "b"], "the pipeline goes on without the stream"
    chain.sql("CREATE STREAM good AS PIPELINE clean; CREATE PIPELINE again INTO o AS SELECT k FROM good")
    feed(chain, "3", record(3, k="c", v=1))
    chain.drain()
    assert chain.rows("again") == [("c",)], "a new stream of the name begins with the rows from now on"
    chain.sql("DROP PIPELINE again; DROP PIPELINE clean")
    assert {p.name for p in streams.iterdir()} == {"raw"}


def test_a_stopped_pipeline_keeps_the_windows_of_its_readers_open(chain: Chain) -> None:
    chain.sql(SUMS)
    feed(chain, "1", *lines(some_rows(40)))
    chain.drain()
    chain.sql("STOP PIPELINE per_second CLOSE WINDOWS")
    chain.drain()
    assert chain.rows("per_minute") == []
    chain.sql("START PIPELINE per_second")
    feed(chain, "2", record(200, k="a", v=1))
    chain.drain()
    assert {row[0] for row in chain.rows("per_minute")} == {at(0)}


def test_a_savepoint_of_one_stream_takes_the_chain_along_and_restores_one_cut(
    chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain.sql(SUMS)
    rows = some_rows(160)
    feed(chain, "1", *lines(rows[:80]))
    chain.step("raw")  # the feed holds rows that the second stream has not read
    path = chain.hub.savepoint("half", stream="seconds")
    assert {p.name for p in (path / "streams").iterdir()} == {"raw", "seconds"}
    saved = chain.copied()
    feed(chain, "2", *lines(rows[80:]))
    assert chain.hub.wait_until_end(60)
    assert chain.bag("per_minute") == per_minute(rows)
    chain.hub.close()
    chain.checkpoints, chain.kept = saved
    restore(path, tmp_path / "restored")
    again = Chain(tmp_path / "restored", monkeypatch, like=chain)
    again.drain()
    assert again.hub.wait_until_end(60)
    assert again.bag("per_minute") == per_minute(rows)


def test_a_script_that_is_rolled_back_leaves_the_chain_as_it_was(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that the script dropped is declared again, and gets the rows from then on."""
    chain.sql("CREATE PIPELINE clean INTO p, STREAM good AS SELECT ts, k, v FROM raw")
    launch = chain.launch

    def refuse(request: Any) -> Any:
        if request.stream == "other":
            raise StreamFailed("it cannot start")
        return launch(request)

    monkeypatch.setattr(chain, "launch", refuse)
    other = chain.directory.parent / "in"
    with pytest.raises(StreamFailed):
        chain.sql(
            "DROP STREAM good; CREATE PIPELINE two INTO p, STREAM better AS SELECT ts, k FROM raw;"
            f"CREATE STREAM other (k STRING) WITH (source = 'files', format = 'json', path = '{other}');"
            "CREATE PIPELINE x INTO o AS SELECT k FROM other"
        )
    assert set(chain.hub.catalog.streams) == {"raw", "good"}
    assert set(chain.hub.catalog.pipelines) == {"clean"}
    chain.sql("CREATE PIPELINE reads INTO o AS SELECT k FROM good")
    feed(chain, "1", record(1, k="a", v=1))
    chain.drain()
    assert chain.rows("reads") == [("a",)]
    assert {p.name for p in (chain.directory / "streams").iterdir()} == {"raw", "good"}


@settings(max_examples=examples(10), suppress_health_check=list(HealthCheck), deadline=None)
@given(
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    schedule=st.lists(st.sampled_from(["raw", "seconds", "raw crash", "seconds crash"]), max_size=20),
    step=st.sampled_from([0.25, 0.5, 1.25, 7.5]),
)
def test_the_output_does_not_depend_on_how_the_input_and_the_streams_are_cut(
    cuts: list[int], schedule: list[str], step: float
) -> None:
    rows = [(i * step, "ab"[i % 2], i % 13) for i in range(sum(cuts))]
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        (Path(place) / "in").mkdir()
        chain = Chain(Path(place) / "state", patch)
        chain.sql(RAW.format(path=Path(place) / "in") + SUMS)
        plan, given_rows = iter(schedule), 0
        for number, size in enumerate(cuts):
            feed(chain, f"{number:03}", *lines(rows[given_rows : given_rows + size]))
            given_rows += size
            for _ in range(3):
                stream, _, crash = next(plan, "").partition(" ")
                if stream:
                    chain.checkpoint(stream).crash = "lanes" if crash else ""
                    try:
                        chain.step(stream)
                    except Crash:
                        chain.crash()
        for kept in chain.checkpoints.values():
            kept.crash = ""
        assert chain.hub.wait_until_end(60)
        assert chain.bag("per_minute") == per_minute(rows)
        chain.hub.close()


def test_an_altered_pipeline_keeps_feeding_the_stream(chain: Chain) -> None:
    chain.sql("CREATE PIPELINE clean INTO STREAM good (WATERMARK FOR ts AS ts) AS SELECT ts, k, v FROM raw")
    chain.sql("CREATE PIPELINE reads INTO o AS SELECT v FROM good")
    chain.sql("ALTER PIPELINE clean SET (host = 'shared')")
    chain.sql("ALTER PIPELINE clean INTO p, STREAM good")
    chain.sql("ALTER PIPELINE clean AS SELECT ts, k, v * 2 AS v FROM raw")
    feed(chain, "1", record(1, k="a", v=2))
    chain.drain()
    assert (chain.rows("reads"), len(chain.rows("clean"))) == ([(4,)], 1)


@pytest.mark.parametrize("limit", ["3kb", "100b"])  # the feed is full after three epochs, and after every one
def test_a_stream_that_nobody_reads_pauses_the_stream_below_and_loses_nothing(chain: Chain, limit: str) -> None:
    chain.sql("CREATE PIPELINE clean INTO p AS SELECT ts, k, v FROM raw")
    chain.sql(f"CREATE STREAM good AS PIPELINE clean WITH (backpressure = 'pause', max_backlog = '{limit}')")
    for part in range(8):
        feed(chain, f"{part}", *(record(part, k=f"{part}", v=i) for i in range(20)))
        chain.drain()
    read = len(chain.rows("clean"))
    assert 20 <= read < 160, "the stream waits until there is room"
    chain.sql("CREATE PIPELINE reads INTO o AS SELECT k, v FROM good")
    chain.drain()
    assert len(chain.rows("clean")) == 160
    assert chain.bag("reads") == Counter((f"{part}", i) for part in range(8) for i in range(20))


def test_rows_that_find_no_room_are_counted(chain: Chain) -> None:
    chain.sql("CREATE PIPELINE clean INTO p AS SELECT ts, k, v FROM raw")
    chain.sql("CREATE STREAM good AS PIPELINE clean WITH (backpressure = 'drop', max_backlog = '3kb')")
    for part in range(8):
        feed(chain, f"{part}", *(record(part, k=f"{part}", v=i) for i in range(20)))
        chain.drain()
    assert len(chain.rows("clean")) == 160, "the other sink gets all rows"
    chain.sql("CREATE PIPELINE reads INTO o AS SELECT k, v FROM good")
    chain.drain()
    dropped = chain.hub.streams["good"].status().bad["no_room"]
    assert 0 < dropped < 160
    assert len(chain.rows("reads")) == 160 - dropped


@pytest.mark.parametrize("place", ["", "logged", "lanes", "committed"])
def test_a_stream_that_is_declared_again_has_no_rows_of_the_old_pipeline(chain: Chain, place: str) -> None:
    """An epoch of the old pipeline is under way when both are dropped and declared again."""
    chain.sql("CREATE PIPELINE p INTO o, STREAM d AS SELECT ts, v FROM raw")
    feed(chain, "1.json", record(1, v=1))
    chain.drain()
    feed(chain, "2.json", record(2, v=2))
    if place:
        chain.checkpoint("raw").crash = place
        with pytest.raises(Crash):
            chain.drain()
        chain.crash()
    else:
        planner, kept = chain.queries["raw"].planner, chain.checkpoint("raw")
        assert kept.end is not None
        start, end = kept.end, next(found for _ in range(5) if (found := planner.latest(kept.end)) != kept.end)
        kept.logged = (start, end)
        list(planner.partitions(start, end))
    chain.sql("DROP PIPELINE p; CREATE PIPELINE p INTO o, STREAM d AS SELECT ts, v FROM raw WHERE v > 2")
    chain.sql("CREATE PIPELINE r INTO p AS SELECT v FROM d")
    chain.drain()
    feed(chain, "3.json", record(3, v=3))
    chain.drain()
    assert [row[-1] for row in chain.rows("r")] == [3]
