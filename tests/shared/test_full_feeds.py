"""A feed that cannot be written to: the stream waits, shows the reason, and continues by itself with every row once."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from headrace.base import durable
from headrace.model import stored
from headrace.sinks import feed_sink
from headrace.sinks.feed_log import FeedSegment, write_segment
from headrace.stream.retries import RetryPolicy
from tests.e2e.support import put
from tests.shared.chain import Chain, record


class Disk:
    """The disk of the state directory. Files with `refused` in their path cannot be written."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.refused, self.number = "", errno.ENOSPC
        patch.setattr(stored, "write_atomic", self._write)
        patch.setattr(feed_sink, "write_segment", self._segment)

    def _refuse(self, path: Path) -> None:
        if self.refused and self.refused in str(path):
            raise OSError(self.number, "refused", str(path))

    def _write(self, path: Path, data: bytes) -> None:
        self._refuse(path)
        durable.write_atomic(path, data)

    def _segment(self, directory: Path, name: str, table: object) -> FeedSegment:
        self._refuse(directory / name)
        return write_segment(directory, name, table)  # type: ignore[arg-type]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr("headrace.stream.supervisor.RetryPolicy", lambda: RetryPolicy(first=600, longest=600))
    return Disk(monkeypatch)


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk) -> Chain:
    (tmp_path / "in").mkdir()
    made = Chain(tmp_path / "state", monkeypatch)
    made.sql(
        f"""CREATE STREAM s (ts TIMESTAMP, a BIGINT, WATERMARK FOR ts AS ts)
        WITH (source = 'files', format = 'json', path = '{tmp_path / "in"}');
        CREATE SINK o WITH (type = 'kept'); CREATE SINK p WITH (type = 'kept')"""
    )
    return made


def feed(chain: Chain, low: int, high: int) -> None:
    put(chain.directory.parent / "in" / f"{low}.json", [record(i, a=i) for i in range(low, high)])
    chain.drain()


def again(chain: Chain) -> None:
    chain.hub.runtime("s").supervisor.try_now()
    chain.drain()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize(
    ("into", "refused"),
    [
        ("STREAM t", "input/segments"),
        ("STREAM t", "input/epochs"),
        ("STREAM t, p", "input/epochs"),
        ("p, STREAM t", "input/epochs"),
        ("p, STREAM t", "input/promise"),
    ],
)
def test_a_feed_that_cannot_be_written_is_waited_for_and_no_row_is_lost_or_doubled(
    chain: Chain, disk: Disk, into: str, refused: str, number: int
) -> None:
    chain.sql(f"CREATE PIPELINE up INTO {into} AS SELECT a FROM s; CREATE PIPELINE down INTO o AS SELECT a FROM t")
    feed(chain, 0, 10)
    disk.refused, disk.number = refused, number
    feed(chain, 10, 20)
    for _ in range(2):
        assert chain.hub.pipelines["up"].status().state == "retrying"
        assert chain.hub.pipelines["up"].status().error.startswith("[SINK_UNAVAILABLE]")
        again(chain)
    disk.refused = ""
    again(chain)
    feed(chain, 20, 30)
    assert chain.hub.pipelines["up"].status().state == "running"
    assert chain.rows("down") == [(i,) for i in range(30)]
    if "p" in into.split(", "):
        assert chain.rows("up") == [(i,) for i in range(30)]


@pytest.mark.parametrize("way", ["STOP PIPELINE up NOW", "DROP PIPELINE up"])
@pytest.mark.parametrize("refused", ["input/segments", "input/epochs"])
def test_the_other_pipelines_continue_without_one_whose_feed_cannot_be_written(
    chain: Chain, disk: Disk, refused: str, way: str
) -> None:
    chain.sql("CREATE PIPELINE up INTO STREAM t AS SELECT a FROM s; CREATE PIPELINE other INTO p AS SELECT a FROM s")
    feed(chain, 0, 10)
    disk.refused = refused
    feed(chain, 10, 20)
    assert chain.hub.pipelines["other"].status().state == "retrying"
    assert all(advised in chain.hub.pipelines["up"].status().error for advised in ("STOP PIPELINE ... NOW", "DROP"))
    chain.sql(way)
    again(chain)
    feed(chain, 20, 30)
    assert chain.rows("other") == [(i,) for i in range(30)]
