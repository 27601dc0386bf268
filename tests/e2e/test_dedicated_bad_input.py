"""Bad input of a query on the dedicated host stops that pipeline, with a code that says why, and no other."""

from __future__ import annotations

import os
import shutil
import signal
import time
from typing import TYPE_CHECKING

import pytest

import headrace
from tests.e2e.support import until
from tests.e2e.two_streams import Streams, found

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def failure(hub: Hub, name: str) -> str:
    status = hub.pipelines[name].status
    return str(until(lambda: status().state == "failed" and status().error, f"{name} fails", 300))


def test_a_table_that_is_gone_and_functions_that_hang_or_die_stop_only_their_pipeline(streams: Streams) -> None:
    gate, dim = streams.base / "gate", streams.base / "dim"

    def hangs(i: int) -> int:
        while gate.exists():
            time.sleep(0.1)
        return i

    def leaks(i: int) -> int:
        if i == 21:
            os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
        return i

    streams.session.udf.register("hangs", hangs, "long")
    streams.session.udf.register("leaks", leaks, "long")
    streams.session.range(100).selectExpr("id", "id * 2 AS w").write.parquet(str(dim))
    pairs = "FROM a JOIN b ON a.id = b.id"
    with headrace.connect(streams.base / "state", spark=streams.session) as hub:
        hub.sql(streams.script())
        hub.sql(
            f"CREATE PIPELINE j INTO m AS SELECT a.id {pairs};"
            f"CREATE PIPELINE tabled INTO m AS SELECT a.id, d.w {pairs} JOIN parquet.`{dim}` d ON a.id = d.id;"
            f"CREATE PIPELINE leaky INTO m AS SELECT leaks(a.id) AS id {pairs};"
            f"CREATE PIPELINE hung INTO m AS SELECT hangs(a.id) AS id {pairs}"
        )
        for name in "ab":
            streams.give(hub, name, range(3))
        for name in "ab":
            hub.streams[name].sync(300)
        assert found(hub, "tabled") == [(0, 0), (1, 2), (2, 4)]
        assert found(hub, "leaky") == found(hub, "hung") == [(0,), (1,), (2,)]
        shutil.rmtree(dim)
        gate.touch()
        for name in "ab":
            streams.give(hub, name, range(20, 23))
        said = failure(hub, "tabled")
        assert said.startswith("[SPARK_REFUSED]") and "dim" in said
        assert failure(hub, "leaky").startswith("[WORKER_DIED]")
        until(lambda: len(found(hub, "j")) == 6, "the neighbour goes on", 300)
        assert hub.pipelines["hung"].status().state == "running"
        assert found(hub, "hung") == [(0,), (1,), (2,)], "nothing of the batch that hangs is in the sink"
        hub.sql("STOP PIPELINE hung NOW")
        assert hub.pipelines["hung"].status().state == "stopped"
        gate.unlink()
        for name in "ab":
            streams.give(hub, name, range(30, 31))
        until(lambda: len(found(hub, "j")) == 7, "the neighbour goes on", 300)
        for name in ("tabled", "leaky", "hung", "j"):
            hub.sql(f"DROP PIPELINE {name}")
        assert streams.left() == []
