"""No room where DuckDB spills: the stream waits, shows the reason, and continues by itself with every row once."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from headrace.exec import duck
from headrace.model.program import Meaning
from headrace.stream.retries import RetryPolicy
from tests.e2e.support import put
from tests.shared.mini import Mini
from tests.soak.places import SmallDisk, can_mount

KEYS = 60_000  # their groups take more than MEMORY
MEMORY = "8MB"

Full = Callable[[], AbstractContextManager[None]]


@pytest.fixture(params=["a small disk", "errors of DuckDB"])
def full(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Full]:
    """A context in which the disk of DuckDB's temporary directory is full."""
    monkeypatch.setattr("headrace.stream.supervisor.RetryPolicy", lambda: RetryPolicy(first=600, longest=600))
    if request.param == "errors of DuckDB":
        yield lambda: refusing(monkeypatch)
        return
    if not can_mount():
        pytest.skip("needs the right to mount a file system")
    disk = SmallDisk(tmp_path / "spill", megabytes=64)
    monkeypatch.setattr(tempfile, "tempdir", str(disk.path))
    monkeypatch.setattr(duck, "MEMORY_LIMIT", MEMORY)
    monkeypatch.setattr(duck, "_connections", {})
    yield disk.full
    disk.close()


@contextmanager
def refusing(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every query that groups fails as DuckDB does on a full disk."""
    run = duck.run

    def refuse(meaning: Meaning, sql: str, relations: dict[str, pa.Table]) -> pa.Table:
        if "GROUP BY" in sql:
            raise duckdb.IOException('IO Error: Could not write file "/tmp/x.tmp": No space left on device')
        return run(meaning, sql, relations)

    with patch.context() as inside:
        inside.setattr(duck, "run", refuse)
        yield


def feed(mini: Mini, number: int) -> None:
    lines = [json.dumps({"k": f"{i:050}", "v": i}) for i in range(KEYS)]
    put(mini.directory.parent / "in" / f"{number}.json", lines)
    mini.drain()


@pytest.mark.parametrize("first", [True, False])
def test_a_full_disk_under_the_spilled_groups_is_waited_for_and_every_row_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: Full, first: bool
) -> None:
    """Also if the disk is full when DuckDB spills for the first time."""
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql(f"""
        CREATE STREAM s (k STRING, v BIGINT) WITH (source = 'files', format = 'json', path = '{tmp_path / "in"}');
        CREATE SINK m WITH (type = 'memory');
        CREATE SINK n WITH (type = 'memory');
        CREATE PIPELINE groups INTO m AS SELECT k, sum(v) AS total FROM s GROUP BY k;
        CREATE PIPELINE rows INTO n AS SELECT v FROM s WHERE v < 10""")
    epochs = 0
    if not first:
        feed(mini, epochs)
        epochs += 1
    with full():
        feed(mini, epochs)
        for _ in range(3):
            assert [p.status().state for p in mini.hub.pipelines.values()] == ["retrying", "retrying"]
            assert mini.hub.pipelines["groups"].status().error.startswith("[DISK_FULL]")
            mini.hub.runtime("s").supervisor.try_now()
            mini.drain()
    epochs += 1
    mini.hub.runtime("s").supervisor.try_now()
    mini.drain()
    assert [p.status().state for p in mini.hub.pipelines.values()] == ["running", "running"]
    assert mini.hub.pipelines["rows"].results()["v"].to_pylist() == list(range(10)) * epochs
    latest = {row["k"]: row["total"] for row in mini.hub.pipelines["groups"].results().to_pylist()}
    assert latest == {f"{i:050}": i * epochs for i in range(KEYS)}
    mini.hub.close()
