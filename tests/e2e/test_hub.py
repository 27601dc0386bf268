"""A hub while it runs: pipelines join, leave, stop, start and fail; restarts resume; mistakes are refused by code.

All tests share one Spark session; each has a state directory and a stream of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import headrace
from headrace.errors import (
    AlreadyExists,
    HeadraceError,
    HubClosed,
    InUse,
    PipelineFailed,
    SessionMismatch,
    StateInUse,
    StateTooNew,
    StreamFailed,
    UnknownPipeline,
)
from headrace.hub.hub import Hub
from headrace.state.catalog import CatalogFile
from headrace.state.progress import read_progress, write_progress
from tests.e2e.support import put, rows_of, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = "id BIGINT, k STRING, v BIGINT, ts TIMESTAMP, extra STRING"


def lines(low: int, high: int) -> list[str]:
    """Rows low..high-1, one a second; `v` is 0 for every tenth row from 500 on."""
    return [
        f'{{"id": {i}, "k": "k{i % 3}", "v": {0 if i % 10 == 0 and i >= 500 else i}, '
        f'"ts": "2026-01-01T{i // 3600:02}:{i // 60 % 60:02}:{i % 60:02}Z", "extra": "e{i}"}}'
        for i in range(low, high)
    ]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with `in/0.json`: rows 0 to 99."""
    put(tmp_path / "in" / "0.json", lines(0, 100))
    return tmp_path


@pytest.fixture
def hub(place: Path, spark: SparkSession) -> Iterator[Hub]:
    """A hub with the stream `s` and the memory sink `m`."""
    with headrace.connect(place / "state", spark=spark, buckets=2) as opened:
        opened.sql(stream_sql(place))
        yield opened


def stream_sql(place: Path, **options: str) -> str:
    more = "".join(f", {k} = '{v}'" for k, v in options.items())
    return (
        f"CREATE STREAM s ({COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS) "
        f"WITH (source = 'files', format = 'json', path = '{place / 'in'}'{more}); "
        "CREATE SINK m WITH (type = 'memory')"
    )


def ids(hub: Hub, pipeline: str) -> list[int]:
    return sorted(row[0] for row in rows_of(hub.pipelines[pipeline].results()))


def test_pipelines_of_one_script_join_in_the_same_epoch_and_see_every_row(hub: Hub, place: Path) -> None:
    hub.sql(
        "CREATE PIPELINE a INTO m AS SELECT id FROM s; CREATE PIPELINE b INTO m AS SELECT id, k FROM s; "
        "CREATE PIPELINE c INTO m AS SELECT count(*) AS n FROM s"
    )
    assert hub.wait_until_end(90)
    assert ids(hub, "a") == ids(hub, "b") == list(range(100))
    assert ids(hub, "c") == [100]
    # One epoch for all three joins and all rows, one for the end.
    assert hub.streams["s"].status().epoch == 1
    assert {p.status().state for p in hub.pipelines.values()} == {"finished"}
    assert hub.pipelines["a"].wait(0)


def test_a_pipeline_that_joins_later_never_sees_the_null_of_a_column_that_was_not_decoded_yet(
    hub: Hub, place: Path
) -> None:
    hub.sql("CREATE PIPELINE first INTO m AS SELECT id FROM s")
    until(lambda: hub.pipelines["first"].status().rows_out == 100, "the first file is read")
    assert hub.streams["s"].status().decoding_columns == ["id", "ts"]
    stop = threading.Event()

    def feed() -> None:
        number = 1
        while not stop.is_set() and number < 200:
            put(place / "in" / f"{number:03}.json", lines(number * 100, number * 100 + 5))
            number += 1
            stop.wait(0.1)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        until(lambda: hub.pipelines["first"].status().rows_out > 110, "rows flow")
        hub.sql("CREATE PIPELINE later INTO m AS SELECT id, extra FROM s")
        assert hub.streams["s"].status().decoding_columns == ["id", "ts", "extra"]
        until(lambda: hub.pipelines["later"].results().num_rows > 10, "the joined pipeline has rows")
    finally:
        stop.set()
        feeder.join()
    assert hub.wait_until_end(90)
    joined = rows_of(hub.pipelines["later"].results())
    assert all(extra == f"e{i}" for i, extra in joined)
    # It saw everything from its first epoch on, and nothing twice.
    everything = ids(hub, "first")
    assert sorted(i for i, _ in joined) == everything[-len(joined) :]


def test_stop_keeps_state_start_continues_with_it_and_drop_forgets(hub: Hub, place: Path) -> None:
    hub.sql(
        "CREATE PIPELINE total INTO m AS SELECT count(*) AS n FROM s; CREATE PIPELINE other INTO m AS SELECT id FROM s"
    )
    until(lambda: rows_of(hub.pipelines["total"].results())[-1:] == [(100,)], "100 rows are counted")
    hub.pipelines["total"].stop()
    assert hub.pipelines["total"].status().state == "stopped"
    assert hub.pipelines["total"].wait(0)
    put(place / "in" / "1.json", lines(100, 130))
    until(lambda: hub.pipelines["other"].status().rows_out == 130, "the neighbour goes on")
    hub.pipelines["total"].start()
    put(place / "in" / "2.json", lines(130, 150))
    # Rows that came while it was stopped are a gap; its counts from before are kept.
    until(lambda: rows_of(hub.pipelines["total"].results())[-1:] == [(120,)], "it goes on with its count")
    hub.sql("DROP PIPELINE total")
    with pytest.raises(UnknownPipeline):
        hub.sql("STOP PIPELINE total")
    hub.sql("CREATE PIPELINE total INTO m AS SELECT count(*) AS n FROM s")
    put(place / "in" / "3.json", lines(150, 155))
    until(lambda: rows_of(hub.pipelines["total"].results())[-1:] == [(5,)], "a new pipeline has no old state")


def test_or_replace_is_a_new_pipeline_in_the_same_place(hub: Hub, place: Path) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT count(*) AS n FROM s")
    until(lambda: rows_of(hub.pipelines["p"].results())[-1:] == [(100,)], "100 rows are counted")
    before = hub.pipelines["p"].status().instance
    with pytest.raises(AlreadyExists):
        hub.sql("CREATE PIPELINE p INTO m AS SELECT count(v) AS n FROM s")
    hub.sql("CREATE OR REPLACE PIPELINE p INTO m AS SELECT count(v) AS n FROM s")
    assert hub.pipelines["p"].status().instance > before
    put(place / "in" / "1.json", lines(100, 107))
    until(lambda: rows_of(hub.pipelines["p"].results())[-1:] == [(7,)], "the new one counts from its first epoch")


def test_the_last_pipeline_leaving_stops_the_query_and_the_stream_stays(hub: Hub, place: Path) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT count(*) AS n FROM s")
    assert hub.streams["s"].status().running
    hub.sql("DROP PIPELINE p")
    status = hub.streams["s"].status()
    assert not status.running
    assert status.decoding_columns == []
    assert not hub.spark.streams.active
    hub.sql("CREATE PIPELINE q INTO m AS SELECT id FROM s")
    put(place / "in" / "1.json", lines(100, 110))
    until(lambda: ids(hub, "q") == list(range(100, 110)), "the stream goes on where it was")
    hub.sql("DROP PIPELINE q; DROP STREAM s")
    assert hub.streams == {}


def test_a_changed_stream_is_refused_and_so_is_dropping_what_is_in_use(hub: Hub, place: Path) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    declared = hub.catalog.streams
    hub.sql(stream_sql(place))
    assert hub.catalog.streams == declared
    with pytest.raises(AlreadyExists):
        hub.sql(stream_sql(place, max_epoch_bytes="1mb"))
    with pytest.raises(InUse):
        hub.sql(stream_sql(place, max_epoch_bytes="1mb").replace("CREATE STREAM", "CREATE OR REPLACE STREAM"))
    with pytest.raises(InUse):
        hub.sql("DROP STREAM s")
    with pytest.raises(InUse):
        hub.sql("DROP SINK m")
    # A script with a mistake in it has no effect at all.
    with pytest.raises(HeadraceError):
        hub.sql("CREATE PIPELINE q INTO m AS SELECT id FROM s; CREATE PIPELINE r INTO m AS SELECT nope FROM s")
    assert list(hub.pipelines) == ["p"]


def test_a_pipeline_that_fails_keeps_its_error_and_its_neighbour_is_complete(hub: Hub, place: Path) -> None:
    hub.sql(
        f"CREATE SINK files WITH (type = 'jsonl', path = '{place / 'out'}');"
        "CREATE PIPELINE divides INTO m, files AS SELECT id, 1000 / v AS q FROM s WHERE id > 0;"
        "CREATE PIPELINE casts INTO m AS SELECT window.start AS start, max(CAST(extra AS INT)) AS n FROM s "
        "WHERE id >= 500 GROUP BY window(ts, '1 minute');"
        "CREATE PIPELINE fine INTO m AS SELECT id, v FROM s"
    )
    until(lambda: hub.pipelines["divides"].status().rows_out == 99, "rows without a zero pass")
    put(place / "in" / "1.json", lines(100, 700))
    until(lambda: hub.pipelines["divides"].status().state == "failed", "the division fails")
    until(lambda: hub.pipelines["casts"].status().state == "failed", "the cast fails")
    for name in ("divides", "casts"):
        assert "[EVALUATION_FAILED]" in hub.pipelines[name].status().error
        with pytest.raises(PipelineFailed):
            hub.pipelines[name].wait(5)
    put(place / "in" / "2.json", lines(700, 750))
    assert hub.wait_until_end(90)
    assert ids(hub, "fine") == list(range(750))
    # The epoch in which it failed left no output and no staged files.
    assert hub.pipelines["divides"].status().rows_out == 99
    assert ids(hub, "divides") == list(range(1, 100))
    assert not list((place / "out").rglob("*.staged"))
    assert hub.pipelines["fine"].status().state == "finished"


def test_a_failure_that_a_crash_kept_from_the_catalog_is_known_to_the_next_hub(
    place: Path, spark: SparkSession
) -> None:
    """The failure is stored with its epoch. If the hub dies right after that, the catalog still says running."""
    put(place / "in" / "0.json", lines(500, 600))
    with headrace.connect(place / "state", spark=spark) as first:
        first.sql(stream_sql(place) + "; CREATE PIPELINE p INTO m AS SELECT 1000 / v AS q FROM s")
        crashed = CatalogFile(place / "state").read()
        until(lambda: first.pipelines["p"].status().state == "failed", "the division fails")
        error = first.pipelines["p"].status().error
        instance = first.pipelines["p"].status().instance
        directory = first.runtime("s").directory
    CatalogFile(place / "state").save(crashed)
    write_progress(directory, replace(read_progress(directory), failures={f"{instance}/0": error}))
    with headrace.connect(place / "state", spark=spark) as second:
        assert second.pipelines["p"].status().state == "failed"
        assert second.pipelines["p"].status().error == error
        # After a restart it has no state, and reads only new rows.
        second.pipelines["p"].start()
        put(place / "in" / "1.json", lines(0, 50)[1:])
        until(lambda: second.pipelines["p"].results().num_rows == 49, "it runs again")
        assert second.pipelines["p"].status().state == "running"


def test_waiting_for_the_end_does_not_hang_when_the_only_pipeline_fails(hub: Hub, place: Path) -> None:
    put(place / "in" / "1.json", lines(500, 600))
    hub.sql("CREATE PIPELINE divides INTO m AS SELECT 1000 / v AS q FROM s")
    assert hub.wait_until_end(60)
    until(lambda: hub.pipelines["divides"].status().state == "failed", "the division fails")
    assert not hub.streams["s"].status().running


def test_a_pipeline_that_fails_while_its_windows_close_at_the_end_does_not_wake_the_stream_again(
    hub: Hub, place: Path
) -> None:
    """Rows 0 to 99 make windows of 60 and 40 rows; the second closes only when the input has ended."""
    hub.sql(
        "CREATE PIPELINE p INTO m AS SELECT window.start AS start, 1 / (count(*) - 40) AS q FROM s "
        "GROUP BY window(ts, '1 minute'); CREATE PIPELINE fine INTO m AS SELECT id FROM s"
    )
    assert hub.wait_until_end(90)
    until(lambda: hub.pipelines["p"].status().state == "failed", "the division fails")
    assert hub.pipelines["fine"].status().state == "finished"
    assert not hub.streams["s"].status().running
    assert ids(hub, "fine") == list(range(100))


def test_a_file_that_is_replaced_fails_the_stream_with_its_code(hub: Hub, place: Path) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    until(lambda: hub.pipelines["p"].status().rows_out == 100, "the file is read")
    put(place / "in" / "0.json", lines(0, 50))
    with pytest.raises(StreamFailed) as failure:
        hub.pipelines["p"].wait(60)
    assert "FILE_CHANGED" in str(failure.value)
    with pytest.raises(StreamFailed):
        hub.wait_until_end(60)
    with pytest.raises(StreamFailed):
        hub.sql("CREATE PIPELINE q INTO m AS SELECT id FROM s")


def test_a_second_owner_and_a_newer_format_are_refused(hub: Hub, place: Path, spark: SparkSession) -> None:
    with pytest.raises(StateInUse):
        headrace.connect(place / "state", spark=spark)
    newer = place / "newer"
    newer.mkdir()
    (newer / "VERSION").write_text("999\n")
    with pytest.raises(StateTooNew):
        headrace.connect(newer, spark=spark)


def test_a_hub_opened_again_resumes_and_a_closed_one_refuses(place: Path, spark: SparkSession) -> None:
    files = f"CREATE SINK files WITH (type = 'parquet', path = '{place / 'out'}')"
    script = (
        f"{stream_sql(place)}; {files}; CREATE PIPELINE p INTO files AS SELECT id FROM s;"
        "CREATE PIPELINE n INTO m AS SELECT count(*) AS n FROM s"
    )
    with headrace.connect(place / "state", spark=spark) as first:
        first.sql(script)
        until(lambda: first.pipelines["p"].status().rows_out == 100, "the first file is read")
    with pytest.raises(HubClosed):
        first.sql("SHOW STREAMS")
    put(place / "in" / "1.json", lines(100, 120))
    with headrace.connect(place / "state", spark=spark) as second:
        instances = {name: second.record(name).definition.instance for name in second.pipelines}
        second.sql(script)
        assert {name: second.record(name).definition.instance for name in second.pipelines} == instances
        until(lambda: second.pipelines["p"].status().rows_out == 120, "it goes on, counted from the beginning")
        until(lambda: rows_of(second.pipelines["n"].results())[-1:] == [(120,)], "with its state")
        assert second.wait_until_end(90)
    assert sorted(i for (i,) in rows_of(pq.read_table(place / "out"))) == list(range(120))


def test_two_hubs_on_one_session_do_not_mix_up_their_pipelines(hub: Hub, place: Path, spark: SparkSession) -> None:
    """Both hubs number plan versions and instances from 1, and the same Python workers serve both."""
    hub.sql("CREATE PIPELINE p INTO m AS SELECT count(*) AS n FROM s")
    with headrace.connect(place / "other", spark=spark, buckets=2) as other:
        other.sql(stream_sql(place) + "; CREATE PIPELINE p INTO m AS SELECT k, min(v) AS low FROM s GROUP BY k")
        assert other.wait_until_end(90)
        assert sorted(rows_of(other.pipelines["p"].results())) == [("k0", 0), ("k1", 1), ("k2", 2)]
    put(place / "in" / "1.json", lines(100, 120))
    until(lambda: rows_of(hub.pipelines["p"].results())[-1:] == [(120,)], "the first hub goes on")


def test_a_session_that_means_something_else_by_sql_is_refused(place: Path, spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.ansi.enabled", "false")
    with pytest.raises(SessionMismatch):
        headrace.connect(place / "state", spark=other)
    # The refused hub has released the directory.
    headrace.connect(place / "state", spark=spark).close()


def test_closing_leaves_no_thread_no_query_and_a_session_that_was_handed_in(place: Path, spark: SparkSession) -> None:
    before = set(threading.enumerate())
    hub = headrace.connect(place / "state", spark=spark)
    hub.sql(stream_sql(place) + "; CREATE PIPELINE p INTO m AS SELECT id FROM s")
    hub.close()
    hub.close()
    # py4j's own threads belong to the session, not to the hub.
    left = [t for t in set(threading.enumerate()) - before if t.name.startswith("headrace")]
    assert not left
    assert not spark.streams.active
    assert spark.range(3).count() == 3


def test_a_large_file_is_cut_and_read_by_all_task_slots_in_one_epoch(place: Path, spark: SparkSession) -> None:
    block = "".join(line + "\n" for line in lines(0, 20_000))
    copies = 32
    (place / "big").mkdir()
    with open(place / "big" / ".part", "w") as out:
        for _ in range(copies):
            out.write(block)
    os.rename(place / "big" / ".part", place / "big" / "all.json")
    size = (place / "big" / "all.json").stat().st_size
    assert size > 50_000_000
    with headrace.connect(place / "state", spark=spark) as hub:
        hub.sql(
            stream_sql(place).replace(str(place / "in"), str(place / "big"))
            + "; CREATE PIPELINE p INTO m AS SELECT k, count(*) AS n FROM s GROUP BY k"
        )
        epochs = until(lambda: [s for s in hub.runtime("s").recent if s.rows], "the file is read")
        assert [(e.tasks, e.rows, e.bytes) for e in epochs] == [(3, copies * 20_000, size)]
        assert hub.wait_until_end(90)
        assert hub.pipelines["p"].status().error == ""
        assert sum(n for _, n in rows_of(hub.pipelines["p"].results())) == copies * 20_000


def test_jobs_in_sparks_web_interface_name_the_stream_and_its_pipelines(place: Path, spark: SparkSession) -> None:
    with headrace.connect(place / "state", spark=spark) as hub:
        hub.sql(
            f"CREATE STREAM described ({COLUMNS}) WITH (source = 'files', format = 'json', path = '{place / 'in'}');"
            "CREATE SINK kept WITH (type = 'memory'); CREATE PIPELINE named INTO kept AS SELECT id FROM described"
        )
        until(lambda: hub.pipelines["named"].results().num_rows == 100, "the rows are there")
        jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
        descriptions = [jobs.apply(i).description() for i in range(jobs.size())]
        texts = [found.get() for found in descriptions if found.isDefined()]  # jobs of other tests may have none
    assert [text for text in texts if text.startswith("headrace stream described, batch 0: named")]
