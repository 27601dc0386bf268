"""Large packs of events travel as files on one machine: no row is lost, and no file stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.bridge.spark_rows import clear_staging
from headrace.hub.hub import Hub
from tests.e2e.support import assert_same_rows, put, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KEYS, TIMES = 5_000, 4
DECLARED = """
    CREATE STREAM s (ts TIMESTAMP, k STRING, v BIGINT, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND)
    WITH (source = 'files', path = '{path}', format = 'json');
    CREATE SINK m WITH (type = 'memory');
    CREATE PIPELINE p INTO m AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY window(ts, '1 minute'), k
"""


def run(hub: Hub, inputs: Path) -> None:
    """Every key has a row in each file, and all rows are in one window."""
    for number in range(TIMES):
        rows = (f'{{"ts": "2026-01-01 00:00:{number:02}", "k": "key {k}", "v": {k}}}' for k in range(KEYS))
        put(inputs / f"{number}.json", rows)
    hub.sql(DECLARED.format(path=inputs))
    assert hub.wait_until_end(timeout=120)
    assert_same_rows(
        rows_of(hub.pipelines["p"].results()), [(f"key {k}", TIMES, TIMES * k) for k in range(KEYS)], "sums of all keys"
    )


def packs(state: Path) -> list[Path]:
    return list(state.rglob("*.pack"))


def test_large_packs_are_files_until_their_epoch_is_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[Path]()

    def clear(directory: Path) -> None:
        seen.extend(packs(directory))
        clear_staging(directory)

    monkeypatch.setattr("headrace.spark.committer.clear_staging", clear)
    with headrace.connect(tmp_path / "state", spark=spark) as hub:
        run(hub, tmp_path / "in")
    assert seen
    assert all(path.parent.name == "staged" for path in seen)
    assert not packs(tmp_path / "state")


@contextmanager
def deleting(state: Path, most: int) -> Iterator[list[Path]]:
    """Delete the first files with packs as soon as they are there. The list has those that were deleted."""
    over, deleted = threading.Event(), list[Path]()

    def delete() -> None:
        while len(deleted) < most and not over.wait(0.002):
            for path in packs(state):
                with suppress(FileNotFoundError):
                    path.unlink()
                    deleted.append(path)

    thread = threading.Thread(target=delete, daemon=True)
    thread.start()
    try:
        yield deleted
    finally:
        over.set()
        thread.join(30)


def test_a_pack_that_someone_deletes_costs_another_try_and_no_row(spark: SparkSession, tmp_path: Path) -> None:
    with headrace.connect(tmp_path / "state", spark=spark) as hub, deleting(tmp_path / "state", 2) as gone:
        run(hub, tmp_path / "in")
    assert len(gone) >= 2
