"""SELECT on a hub: rows of a running stream or of a copy of an idle one, and nothing left behind. Without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.app.check import check_script
from headrace.errors import HeadraceError, PipelineFailed
from headrace.hub.hub import Hub
from headrace.hub.look import Looks
from headrace.state.catalog import CatalogFile
from headrace.state.restore import read
from tests.e2e.support import put, until
from tests.shared.running import RunningQueries

STREAM = (
    "CREATE STREAM s (id BIGINT, k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS) WITH (source = "
    "'files', format = 'json', path = '{path}')"
)


def lines(low: int, high: int) -> list[str]:
    return [
        f'{{"id": {i}, "k": "k{i % 2}", "ts": "2026-01-01T00:{i // 60:02}:{i % 60:02}Z"}}' for i in range(low, high)
    ]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    put(tmp_path / "in" / "0.json", lines(0, 200))
    with Hub(tmp_path / "state", RunningQueries()) as opened:
        opened.sql(STREAM.format(path=tmp_path / "in") + "; CREATE SINK m WITH (type = 'memory')")
        opened.sql("CREATE VIEW odd AS SELECT id, ts FROM s WHERE k = 'k1'")
        yield opened


def table(hub: Hub, query: str) -> pa.Table:
    (result,) = hub.sql(query)
    assert result.table is not None
    return result.table


def assert_nothing_is_left(hub: Hub, pipelines: set[str]) -> None:
    catalog = hub.catalog
    assert (catalog.looks, set(catalog.streams), set(catalog.sinks)) == ((), {"s"}, {"m"})
    assert set(catalog.pipelines) == pipelines
    assert {p.name for p in (hub.directory / "streams").glob("*")} <= {hub.runtime("s").directory.name}
    assert CatalogFile(hub.directory).read() == catalog


def test_a_look_at_an_idle_stream_reads_its_source_from_the_beginning_and_uses_nothing_up(hub: Hub) -> None:
    found = table(hub, "SELECT id, k FROM s WHERE id >= 50 LIMIT 3")
    assert found.num_rows == 3 and found.schema.types == [pa.int64(), pa.string()]
    assert table(hub, "SELECT id FROM odd WHERE id < 6").to_pydict() == {"id": [1, 3, 5]}, "the input ends first"
    assert table(hub, "SELECT * FROM s").num_rows == 20, "LIMIT is 20 without one"
    assert table(hub, "SELECT id FROM s LIMIT 0").num_rows == 0
    groups = table(hub, "SELECT window.start AS w, count(*) AS n FROM s GROUP BY window(ts, '1 minute')")
    assert sorted(row["n"] for row in groups.to_pylist()) == [20, 60, 60, 60], "windows close when the input ends"
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    hub.streams["s"].sync()
    assert hub.pipelines["p"].results().num_rows == 200
    assert_nothing_is_left(hub, {"p"})


def test_a_look_at_a_running_stream_shows_the_rows_that_come(hub: Hub, tmp_path: Path) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    hub.streams["s"].sync()

    def feed() -> None:
        until(lambda: hub.catalog.looks and hub.pipelines[hub.catalog.looks[0]].status().state == "running", "a look")
        # While it runs, nothing of it is stored, and savepoints do not have it.
        kept = CatalogFile(hub.directory).read()
        stored.append((set(kept.pipelines), set(kept.sinks), set(kept.streams), len(kept.ended)))
        stored.append(set(CatalogFile(hub.savepoint("during")).read().pipelines))
        stored.append([cut.stream for cut in read(hub.directory / "savepoints" / "during").cuts])
        put(tmp_path / "in" / "1.json", lines(200, 330))

    stored: list[object] = []
    feeding = threading.Thread(target=feed)
    feeding.start()
    began = time.monotonic()
    found = table(hub, "SELECT id FROM odd WHERE id > 210 LIMIT 4 WITH (timeout = '60s')")
    feeding.join()
    assert found.num_rows == 4 and {row["id"] % 2 for row in found.to_pylist() if row["id"] > 210} == {1}
    assert time.monotonic() - began < 50, "it ends with its rows"
    assert stored == [({"p"}, {"m"}, {"s"}, 1), {"p"}, ["s"]], "after a crash its state would be dropped"
    (late,) = hub.sql("SELECT id FROM s LIMIT 5 WITH (timeout = '200ms')")
    assert late.table is not None and late.table.num_rows == 0
    (said,) = late.warnings
    assert "arrive from now on; 0 rows of the result came in 200 milliseconds" in said
    hub.streams["s"].sync()
    assert hub.pipelines["p"].results().num_rows == 330
    assert_nothing_is_left(hub, {"p"})


def test_a_look_at_a_running_stream_says_what_it_covers_and_its_advice_shows_the_earlier_rows(
    hub: Hub, tmp_path: Path
) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    hub.streams["s"].sync()
    count = "SELECT count(*) AS n FROM {} LIMIT 1 WITH (timeout = '300ms')"
    (result,) = hub.sql(count.format("s"))
    (said,) = result.warnings
    assert "covers the rows that arrive from now on" in said and "declare the source as another stream" in said
    hub.sql(STREAM.replace("STREAM s", "STREAM again").format(path=tmp_path / "in"))
    (earlier,) = hub.sql(count.format("again").replace("300ms", "60s"))
    assert earlier.warnings == () and earlier.table is not None
    assert earlier.table.to_pydict() == {"n": [200]}
    hub.sql("DROP STREAM again")
    hub.sql("CREATE PIPELINE q INTO STREAM out AS SELECT id FROM s; CREATE PIPELINE r INTO m AS SELECT id FROM out")
    (result,) = hub.sql(count.format("out"))
    assert "only where its pipelines wrote them" in result.warnings[0]
    hub.sql("DROP PIPELINE q CASCADE")
    assert_nothing_is_left(hub, {"p"})


def test_an_error_in_a_look_shows_the_whole_line(hub: Hub) -> None:
    line = "SELECT id, no FROM s LIMIT 3 WITH (timeout = '1s')"
    with pytest.raises(HeadraceError) as caught:
        hub.sql(f"SHOW SINKS; {line}")
    assert caught.value.span is not None
    source, carets = caught.value.span.caret().split("\n")
    assert source == f"1 | SHOW SINKS; {line}" and carets.index("^") == source.index("no FROM")


def test_a_look_that_fails_or_is_interrupted_leaves_nothing(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PipelineFailed):
        hub.sql("SELECT CAST(concat('x', id) AS INT) AS x FROM s WITH (timeout = '60s')")
    assert_nothing_is_left(hub, set())
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")

    def interrupted(self: Looks, look: object) -> pa.Table:
        raise KeyboardInterrupt

    monkeypatch.setattr(Looks, "_rows", interrupted)
    for query in ("SELECT count(*) AS n FROM s GROUP BY window(ts, '1 hour')", "SELECT id FROM s"):
        with pytest.raises(KeyboardInterrupt):
            hub.sql(query)
        assert_nothing_is_left(hub, {"p"})
        hub.sql("DROP PIPELINE IF EXISTS p")
        hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")


def test_what_a_crash_leaves_of_a_copy_is_deleted_when_the_hub_is_opened_again(hub: Hub) -> None:
    directory = hub.directory / "streams"
    monkey = pytest.MonkeyPatch()
    monkey.setattr(Looks, "_remove", lambda self, look: None)
    table(hub, "SELECT id FROM s LIMIT 1")
    monkey.undo()
    assert len(list(directory.glob("*"))) == 1
    hub.close()
    with Hub(hub.directory, RunningQueries()) as again:
        assert_nothing_is_left(again, set())
        assert not list(directory.glob("*"))


@pytest.mark.parametrize(
    ("query", "code", "place"),
    [
        ("SELECT id, no FROM s LIMIT 3", "UNKNOWN_COLUMN", "no"),
        ("SELECT id FROM nothing LIMIT 3", "UNKNOWN_STREAM", "nothing"),
        ("SELECT id FROM s ORDER BY id LIMIT 3", "UNBOUNDED_SORT", "ORDER"),
        ("SELECT id FROM s LIMIT 3000000", "UNBOUNDED_SORT", None),
        ("SELECT id FROM s WITH (timeout = 'soon')", "BAD_OPTION", "timeout = 'soon'"),
        ("SELECT id FROM s LIMIT 3 WITH (time_limit = '1s')", "UNKNOWN_OPTION", "time_limit = '1s'"),
        ("SELECT a FROM pushed LIMIT 3", "STREAM_IDLE", None),
        ("SELECT s.id FROM s JOIN pushed ON s.id = pushed.a LIMIT 3", "UNSUPPORTED_STATEFUL", None),
    ],
)
def test_a_mistake_has_a_code_and_a_place(hub: Hub, query: str, code: str, place: str | None) -> None:
    hub.sql("CREATE STREAM pushed (a INT) WITH (source = 'tcp', format = 'json', listen = '127.0.0.1:0')")
    with pytest.raises(HeadraceError) as caught:
        hub.sql("SHOW SINKS;\n" + query)
    span = caught.value.span
    assert caught.value.code == code and span is not None and span.line == 2
    assert span.text[span.start : span.end] == (place or query)
    hub.sql("DROP STREAM pushed")
    assert_nothing_is_left(hub, set())


def test_a_script_has_no_place_for_the_rows_of_a_select() -> None:
    with pytest.raises(HeadraceError) as caught:
        check_script(
            "CREATE STREAM s (id BIGINT) WITH (source = 'generator', format = 'json'); SELECT id FROM s LIMIT 3"
        )
    assert caught.value.code == "NO_SINK"
