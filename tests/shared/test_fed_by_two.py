"""A stream that is fed by a pipeline of one stream, and then by one of another stream, while an epoch waits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headrace.stream.stream_status import StoredStream
from tests.e2e.support import put
from tests.shared.chain import Chain, Waits, record
from tests.shared.test_full_feeds import Disk, disk

__all__ = ["disk"]


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk) -> Chain:
    made = Chain(tmp_path / "state", monkeypatch)
    for name in ("s", "u"):
        (tmp_path / name).mkdir()
        made.sql(
            f"CREATE STREAM {name} (ts TIMESTAMP, a BIGINT, WATERMARK FOR ts AS ts) "
            f"WITH (source = 'files', format = 'json', path = '{tmp_path / name}')"
        )
    made.sql("CREATE SINK o WITH (type = 'kept'); CREATE SINK p WITH (type = 'kept')")
    return made


def put_rows(chain: Chain, stream: str, low: int, high: int) -> None:
    put(chain.directory.parent / stream / f"{low}.json", [record(i, a=i) for i in range(low, high)])


@pytest.mark.parametrize("read", [False, True])
def test_an_epoch_that_waits_for_a_sink_is_there_once_although_its_pipeline_was_replaced(
    chain: Chain, disk: Disk, monkeypatch: pytest.MonkeyPatch, read: bool
) -> None:
    chain.sql(
        "CREATE PIPELINE up INTO STREAM d AS SELECT a FROM s; CREATE PIPELINE down INTO o AS SELECT a FROM d; "
        "CREATE PIPELINE other INTO p, STREAM e AS SELECT a FROM s"
    )
    put_rows(chain, "s", 0, 10)
    chain.drain()
    disk.refused = "streams/e/input/epochs"
    put_rows(chain, "s", 10, 20)
    while chain.step("s") or chain.step("s"):  # a step may only find the file
        pass
    assert chain.hub.pipelines["other"].status().error.startswith("[SINK_UNAVAILABLE]")

    def meanwhile() -> None:
        """The statement waits for the epoch of `s`. The new pipeline does not."""
        for low in (20, 30):
            put_rows(chain, "u", low, low + 10)
            for name in ("u", "u", "u", *(["d"] * 3 if read else [])):
                chain.step(name)
        disk.refused = ""
        chain.hub.runtime("s").supervisor.try_now()

    wait = Waits.until_planned

    def until_planned(self: Waits, version: int, timeout: float, stored: StoredStream) -> None:
        if disk.refused and self.query.stream.name == "s":
            meanwhile()
        wait(self, version, timeout, stored)

    monkeypatch.setattr(Waits, "until_planned", until_planned)
    chain.sql("CREATE OR REPLACE PIPELINE up INTO STREAM d AS SELECT a + 1000 AS a FROM u")
    put_rows(chain, "u", 40, 50)
    chain.drain()
    assert chain.rows("other") == [(i,) for i in range(20)]
    assert chain.bag("down") == Counter((i,) for i in [*range(20), *range(1020, 1050)])
