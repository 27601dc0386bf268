"""What Spark readers do while a savepoint is taken, another query takes them over, or their hub was restored."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.state import savepoints
from headrace.state.restore import restore
from tests.shared.test_readers import Readable, UserQuery, opened


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Readable:
    monkeypatch.setattr("headrace.spark.feed_source.BATCH_BYTES", 1)  # a batch has one epoch
    return opened(tmp_path, monkeypatch)


def give(chain: Readable, *values: int) -> None:
    """One epoch for each value."""
    for value in values:
        chain.give(f"{value:06}.json", value)
        chain.drain()


def restored(chain: Readable, savepoint: Path, saved: Any, patch: pytest.MonkeyPatch) -> Readable:
    """The hub that continues from a savepoint. `saved` is what Spark and the sinks had then."""
    chain.hub.close()
    chain.checkpoints, chain.kept = saved
    restore(savepoint, chain.directory.with_name("restored"))
    return Readable(chain.directory.with_name("restored"), patch, like=chain)


def test_a_savepoint_has_all_rows_that_the_copied_reader_still_needs(
    chain: Readable, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = UserQuery(chain, stream="raw", columns="v")
    query.go()
    give(chain, *range(12))
    copy_file, scandir = shutil.copy2, os.scandir

    def copy(source: str, target: Path) -> None:
        copy_file(source, target)
        if "feeds" in Path(source).parts and query.plan():
            query.run()
            query.commits += 1

    def listed(path: Path) -> list[os.DirEntry[str]]:  # the order of a file system is any
        return sorted(scandir(path), key=lambda entry: entry.name)

    with monkeypatch.context() as patch:
        patch.setattr(savepoints, "os", SimpleNamespace(scandir=listed, walk=os.walk))
        patch.setattr(savepoints, "shutil", SimpleNamespace(copy2=copy, rmtree=shutil.rmtree))
        path = chain.hub.savepoint("here")
    assert len(query.rows) > 2, "the query went on while the feed was copied"
    again = restored(chain, path, chain.copied(), monkeypatch)
    other = UserQuery(again, stream="raw", columns="v")
    other.go()
    rows = [row[0] for row in other.rows]
    assert rows == list(range(12))[12 - len(rows) :]
    assert {*rows} >= {*range(12)} - {row[0] for row in query.rows}
