"""`readStream.format("headrace")` without Spark: the data source, the hub behind it, and a model of Spark's query."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType, TimestampType

from headrace.errors import (
    AlreadyExists,
    BadOption,
    DuplicateName,
    EpochMismatch,
    HeadraceError,
    HubClosed,
    ReaderTaken,
    UnknownColumn,
    UnknownPipeline,
    UnknownStream,
    UnsupportedStateful,
)
from headrace.model.stored import store
from headrace.sinks.feed_log import FeedSegment, write_segment
from headrace.spark.reader_source import ReaderDataSource, ReaderOfFeed
from headrace.state.reader_calls import ReaderCall, call_hub
from headrace.stream.retries import RetryPolicy
from tests.e2e.support import put
from tests.shared.chain import Chain, record
from tests.strategies import examples

RAW = """
CREATE STREAM raw (ts TIMESTAMP, k STRING, v BIGINT, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)
WITH (source = 'files', format = 'json', path = '{path}');
CREATE SINK o WITH (type = 'kept');
"""
TYPES: dict[str, DataType] = {"BIGINT": LongType(), "STRING": StringType(), "TIMESTAMP": TimestampType()}
LIMIT: Any = None  # the source has a limit of its own


class Session:
    """As much of a Spark session as a data source needs to be registered."""

    sparkContext = mock.MagicMock(defaultParallelism=2)
    _jsparkSession = type("Inner", (), {"hashCode": staticmethod(lambda: -1)})

    def __init__(self) -> None:
        self.dataSource = self
        self.made: list[type[ReaderDataSource]] = []

    def register(self, made: type[ReaderDataSource]) -> None:
        self.made.append(made)


class Readable(Chain):
    """A chain whose hub has a session."""

    def session(self) -> Any:
        self.__dict__.setdefault("_session", Session())
        return self._session

    _session: Session

    def source(self, **options: str) -> ReaderDataSource:
        """`hub.spark.readStream.format("headrace").options(...)`."""
        session: Any = self.hub.spark
        made: ReaderDataSource = session.made[-1](options)
        return made

    def reader(self, **options: str) -> ReaderOfFeed:
        """The source in the planning process of a query that starts."""
        source = self.source(**options)
        columns = [column.replace("`", "").split(" ") for column in source.schema().split(", ")]
        return source.streamReader(StructType([StructField(name, TYPES[kind]) for name, kind in columns]))

    def give(self, name: str, *values: int) -> None:
        put(self.directory.parent / "in" / name, [record(v, k=f"k{v % 3}", v=v) for v in values])


class UserQuery:
    """What Spark does with a source: logs the offset, runs the batch, logs the commit. `kept` are the rows by batch."""

    def __init__(self, chain: Readable, **options: str) -> None:
        self._chain, self._options = chain, options
        self.offsets: list[dict[str, Any]] = []
        self.commits = 0
        self.kept: dict[int, list[tuple[Any, ...]]] = {}
        self.start()

    def start(self) -> None:
        """A new planning process."""
        self.reader = self._chain.reader(**self._options)

    def _before(self, batch: int) -> dict[str, Any]:
        return self.offsets[batch - 1] if batch else self.reader.initialOffset()

    def plan(self) -> bool:
        """Log the next batch, if there is anything to do."""
        assert self.commits == len(self.offsets), "Spark plans a batch after the commit of the one before"
        start = self._before(len(self.offsets))
        end = self.reader.latestOffset(start, LIMIT)
        if end == start:
            return False
        self.offsets.append(end)
        return True

    def run(self) -> None:
        """Run the newest batch, and write its rows: a batch that is run again replaces itself."""
        batch = len(self.offsets) - 1
        parts = self.reader.partitions(self._before(batch), self.offsets[batch])
        tables = [piece for part in parts for piece in self.reader.read(part)]
        rows = [tuple(row.values()) for piece in tables for row in piece.to_pylist()]
        assert sorted(self.kept.get(batch, rows)) == sorted(rows), "the batch has the same rows when it is run again"
        self.kept[batch] = rows

    def go(self) -> None:
        """Run batches until there is nothing to do."""
        if self.commits < len(self.offsets):  # one was logged and not committed
            self.run()
            self.commits += 1
        while self.plan():
            self.run()
            self.commits += 1

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(row for rows in self.kept.values() for row in rows)


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Readable:
    return opened(tmp_path, monkeypatch)


def opened(base: Path, patch: pytest.MonkeyPatch) -> Readable:
    (base / "in").mkdir()
    made = Readable(base / "state", patch)
    made.sql(RAW.format(path=base / "in"))
    return made


def feeds(chain: Readable) -> list[Path]:
    return [p for p in chain.directory.rglob("feeds/**/*") if p.is_file()]


def test_a_query_reads_the_columns_that_it_chose(chain: Readable) -> None:
    query = UserQuery(chain, stream="raw", columns="v, k")
    assert query.reader.schema.simpleString() == "struct<v:bigint,k:string>"
    assert "raw_reader" not in chain.hub.pipelines, "a frame that is only loaded reads nothing"
    query.go()
    assert chain.hub.pipelines["raw_reader"].status().host == "shared"
    chain.give("1.json", 1, 2, 3)
    chain.drain()
    assert chain.hub.pipelines["raw_reader"].status().waiting_rows == 3
    query.go()
    assert query.rows == [(1, "k1"), (2, "k2"), (3, "k0")]
    assert chain.hub.pipelines["raw_reader"].status().waiting_rows == 0
    assert [p for p in feeds(chain) if "segments" in p.parts] == [], "what is read and committed is forgotten"


def test_a_schema_of_the_frame_chooses_the_columns(chain: Readable) -> None:
    source = chain.source(stream="raw", name="some")
    source.streamReader(StructType([StructField("v", LongType())])).initialOffset()
    assert chain.hub.record("some").definition.program.output.names == ("v",)
    other = StructType([StructField("v", StringType())])
    with pytest.raises(BadOption, match="BIGINT"):
        chain.source(stream="raw", name="other").streamReader(other).initialOffset()


def test_a_declared_pipeline_can_be_read(chain: Readable) -> None:
    chain.sql("CREATE PIPELINE big INTO SPARK READER, o AS SELECT v * 2 AS w FROM raw WHERE v > 1")
    chain.give("1.json", 1, 2, 3)
    chain.drain()
    query = UserQuery(chain, pipeline="big")
    query.go()
    assert query.rows == [(4,), (6,)] == sorted(chain.rows("big"))
    assert "INTO SPARK READER, o" in chain.hub.record("big").definition.sql


def test_drop_removes_everything_and_ends_the_query(chain: Readable) -> None:
    query = UserQuery(chain, stream="raw", name="gone")
    query.go()
    chain.give("1.json", 1, 2)
    chain.drain()
    query.go()
    chain.sql("DROP PIPELINE gone")
    chain.drain()
    assert not [p for p in chain.directory.rglob("*") if "feeds" in p.parts]
    with pytest.raises(UnknownPipeline):
        query.go()
    query.start()
    with pytest.raises(UnknownPipeline, match="since this checkpoint"):
        query.go()
    assert "gone" in chain.hub.pipelines, "the query that starts again declares it again"


def test_a_second_query_takes_the_reader_over(chain: Readable) -> None:
    first = UserQuery(chain, stream="raw")
    first.go()
    chain.give("1.json", 1, 2)
    chain.drain()
    first.go()
    chain.give("2.json", 3)
    chain.drain()
    second = UserQuery(chain, stream="raw")
    second.go()
    assert second.rows == [row for row in second.rows if row[2] == 3] != []
    with pytest.raises(ReaderTaken):
        first.go()
    first.start()
    with pytest.raises(ReaderTaken):
        first.go()
    chain.give("3.json", 4)
    chain.drain()
    second.start()
    second.go()
    assert [row[2] for row in second.rows] == [3, 4]


def test_a_replaced_reader_is_no_longer_the_one_of_the_checkpoint(chain: Readable) -> None:
    chain.sql("CREATE PIPELINE r INTO SPARK READER AS SELECT v FROM raw")
    query = UserQuery(chain, pipeline="r")
    chain.give("1.json", 1)
    chain.drain()
    query.go()
    chain.sql("CREATE OR REPLACE PIPELINE r INTO SPARK READER AS SELECT v + 1 AS v FROM raw")
    query.start()
    with pytest.raises(UnknownPipeline, match="replaced"):
        query.go()


def test_a_checkpoint_from_the_future_is_refused(chain: Readable) -> None:
    query = UserQuery(chain, stream="raw")
    query.go()
    ahead = query.reader.initialOffset() | {"position": 9}
    with pytest.raises(EpochMismatch):
        query.reader.latestOffset(ahead, LIMIT)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, BadOption),
        ({"stream": "raw", "pipeline": "p"}, BadOption),
        ({"stream": "rwa"}, UnknownStream),
        ({"stream": "raw", "columns": "w"}, UnknownColumn),
        ({"stream": "raw", "colums": "v"}, BadOption),
        ({"stream": "raw", "columns": "from_csv(k, 'a INT')"}, BadOption),
        ({"stream": "raw", "columns": "v FROM raw; DROP PIPELINE plain; SELECT v"}, BadOption),
        ({"stream": "raw", "backpressure": "wait"}, BadOption),
        ({"stream": "raw", "backpressure": "x'; DROP PIPELINE plain; --"}, BadOption),
        ({"pipeline": "nobody"}, UnknownPipeline),
        ({"pipeline": "plain"}, BadOption),
        ({"pipeline": "plain", "columns": "v"}, BadOption),
        ({"stream": "raw", "name": "plain"}, AlreadyExists),
    ],
)
def test_wrong_options_are_refused_when_the_frame_is_loaded(
    chain: Readable, options: dict[str, str], error: type[HeadraceError]
) -> None:
    chain.sql("CREATE PIPELINE plain INTO o AS SELECT v FROM raw")
    with pytest.raises(error) as raised:
        chain.source(**options).schema()
    assert type(raised.value) is error and raised.value.advice
    assert list(chain.hub.pipelines) == ["plain"]


def test_what_cannot_be_read_is_refused_by_the_statement(chain: Readable) -> None:
    with pytest.raises(DuplicateName):
        chain.sql("CREATE PIPELINE r INTO SPARK READER, SPARK READER AS SELECT v FROM raw")
    with pytest.raises(UnsupportedStateful):
        chain.sql("CREATE PIPELINE r INTO SPARK READER WITH (host = 'dedicated') AS SELECT v FROM raw")
    with pytest.raises(BadOption):
        chain.sql("CREATE PIPELINE r INTO o WITH (backpressure = 'pause') AS SELECT v FROM raw")


def test_without_its_hub_the_source_says_so(chain: Readable) -> None:
    source = chain.source(stream="raw")
    chain.hub.close()
    with pytest.raises(HubClosed):
        source.schema()
    with pytest.raises(HubClosed):
        call_hub(source.port, "another token", ReaderCall({"stream": "raw"}, opening=False))


@pytest.mark.parametrize("strategy", ["pause", "drop"])
def test_a_reader_that_does_not_read_pauses_the_stream_or_loses_counted_rows(chain: Readable, strategy: str) -> None:
    chain.sql("CREATE PIPELINE fast INTO o AS SELECT v FROM raw")
    query = UserQuery(chain, stream="raw", name="slow", backpressure=strategy, feed_limit="1000B")
    query.go()
    for number in range(6):
        chain.give(f"{number}.json", *range(number * 10, number * 10 + 10))
        chain.drain()
    status, stream = chain.hub.pipelines["slow"].status(), chain.hub.streams["raw"].status()
    if strategy == "pause":
        assert (stream.paused_by, status.dropped_rows) == (["slow"], 0)
        assert len(chain.rows("fast")) < 60
        for _ in range(6):
            query.go()
            chain.drain()
        assert [row[2] for row in query.rows] == list(range(60))
        assert chain.hub.streams["raw"].status().paused_by == []
    else:
        assert (stream.paused_by, len(chain.rows("fast"))) == ([], 60)
        query.go()
        assert 0 < len(query.rows) == 60 - status.dropped_rows < 60


@pytest.mark.parametrize("place", ["segment", "manifest"])
def test_a_feed_on_a_full_disk_is_waited_for_and_no_row_is_lost_or_doubled(
    chain: Readable, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr("headrace.stream.supervisor.RetryPolicy", lambda: RetryPolicy(first=600, longest=600))
    query = UserQuery(chain, stream="raw", columns="v")
    query.go()
    full = [False]

    def refuse(path: Path) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    def write(directory: Path, name: str, table: pa.Table) -> FeedSegment:
        refuse(directory / name) if place == "segment" else None
        return write_segment(directory, name, table)

    def put_down(path: Path, value: Any) -> None:
        refuse(path) if place == "manifest" and path.parent.name == "epochs" else None
        store(path, value)

    monkeypatch.setattr("headrace.sinks.feed_sink.write_segment", write)
    monkeypatch.setattr("headrace.sinks.feed_sink.store", put_down)
    chain.give("1.json", 1, 2)
    chain.drain()
    full[0] = True
    chain.give("2.json", 3, 4)
    chain.drain()
    for _ in range(2):
        status = chain.hub.pipelines["raw_reader"].status()
        assert (status.state, status.error.split("]")[0]) == ("retrying", "[SINK_UNAVAILABLE")
        chain.hub.runtime("raw").supervisor.try_now()
        chain.drain()
    query.go()
    assert query.rows == [(1,), (2,)]
    full[0] = False
    chain.hub.runtime("raw").supervisor.try_now()
    chain.drain()
    query.go()
    assert query.rows == [(1,), (2,), (3,), (4,)]
    assert [p for p in feeds(chain) if "segments" in p.parts] == [], "no try leaves a file"


STEPS = st.lists(st.sampled_from(["give", "stream", "query", "plan", "run", "restart", "crash-hub"]), max_size=25)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_every_row_is_read_once_wherever_the_query_or_the_hub_dies(
    steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as base, monkeypatch.context() as patch:
        chain = opened(Path(base), patch)
        query = UserQuery(chain, stream="raw", columns="v", name="r")
        query.go()
        given_rows = 0
        for step in steps:
            logged = query.commits < len(query.offsets)
            if step == "give":
                chain.give(f"{given_rows:06}.json", given_rows, given_rows + 1)
                given_rows += 2
            elif step == "stream":
                chain.step("raw")
            elif step == "query":
                query.go()
            elif step == "plan" and not logged:
                query.plan()
            elif step == "run" and logged:
                query.run()  # and it dies before Spark logs the commit
                query.start()
            elif step == "restart":
                query.start()
            elif step == "crash-hub":
                chain.crash()
                query.start()
        chain.drain()
        query.go()
        assert [row[0] for row in query.rows] == list(range(given_rows))
        chain.hub.close()
