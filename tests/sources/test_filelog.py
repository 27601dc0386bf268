"""Compacting the log of the files source removes what was read, and nothing that is still needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.sources.filelog import FileLog
from headrace.sources.files import Files
from headrace.sources.source_kind import SourceOffset
from tests.sources.test_files import Clock, make, rows, stream, write


def test_the_log_forgets_what_was_read_and_offsets_keep_their_meaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sources.filelog.COMPACT_LINES", 4)
    data = tmp_path / "data"
    data.mkdir()
    source = make(stream(data, tail="true"), tmp_path / "state")
    start = source.initial()
    for turn in range(40):
        with open(data / "a.json", "a") as out:
            out.write(f'{{"a": {turn}}}\n')
        assert not source.exhausted(start)
        end = source.latest(start, None)
        assert [r[0] for r in rows(source, start, end)] == [turn]
        again = make(stream(data, tail="true"), tmp_path / "state")  # a restart between planning and commit
        assert [r[0] for r in rows(again, start, end)] == [turn]
        source.commit(start)
        start = end
    assert len((tmp_path / "state" / "files.log").read_text().splitlines()) < 20
    assert len(source.log.extents) < 20
    restarted = make(stream(data, tail="true"), tmp_path / "state")
    assert restarted.exhausted(start)


def test_a_file_that_was_read_and_is_gone_is_remembered_for_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileLog, "grown", True)
    data = tmp_path / "data"
    data.mkdir()
    write(data / "old.json", 0, 5)
    aside = tmp_path / "aside.json"

    def later(days: float, source: Files, known: bool) -> Files:
        """Read and commit one more file, some days later, then restart."""
        clock.now += days * 24 * 3600
        write(data / f"{clock.now}.json", 0, 1)
        end = source.latest(offset(source), None)
        source.commit(end)
        assert (str(data / "old.json") in source.log.last) == known
        return make(stream(data), tmp_path / "state", clock)

    def offset(source: Files) -> SourceOffset:
        extent, pos = source.log.place(source.log.total) if source.log.extents else (0, 0)
        return {"extent": extent, "pos": pos}

    clock = Clock()
    source = later(0, make(stream(data), tmp_path / "state", clock), True)
    os.rename(data / "old.json", aside)
    source = later(1, source, True)
    os.rename(aside, data / "old.json")  # back again, say with its mount: not read a second time
    source = later(6, source, True)
    os.rename(data / "old.json", aside)
    source = later(1, later(5, later(1, source, True), True), True)
    later(3, source, False)
