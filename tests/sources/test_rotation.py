"""Growing files that are rotated: every line is read once, whatever logrotate does between two polls."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import BadOption, FileChanged, MissingFile
from headrace.sources import check_stream
from headrace.sources.source_kind import SourceOffset
from tests.sources.test_files import make, rows, stream


class Log:
    """A program that writes numbered lines to app.log, and a logrotate for it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.directory, self.path, self.count = directory, directory / "app.log", 0
        self.file = self.path.open("a")

    def line(self, ended: bool = True) -> None:
        self.file.write(f'{{"a":{self.count}}}' + ("\n" if ended else ""))
        self.file.flush()
        self.count += ended

    def finish(self) -> None:
        """The rest of an open line."""
        self.file.write("\n")
        self.file.flush()
        self.count += 1

    def rename(self, keep: int = 3) -> None:
        """app.log becomes app.log.1 and so on; the program keeps writing to it until `reopen`."""
        for i in range(keep, 0, -1):
            older = self.directory / f"app.log.{i}"
            if older.exists():
                older.rename(self.directory / f"app.log.{i + 1}") if i < keep else older.unlink()
        self.path.rename(self.directory / "app.log.1")

    def reopen(self) -> None:
        self.file.close()
        self.file = self.path.open("a")

    def copytruncate(self, keep: int = 3) -> None:
        for i in range(keep - 1, 0, -1):
            older = self.directory / f"app.log.{i}"
            if older.exists():
                older.rename(self.directory / f"app.log.{i + 1}")
        shutil.copy(self.path, self.directory / "app.log.1")
        os.truncate(self.path, 0)


class Reader:
    """Reads a stream in epochs. A restart makes the source again from its log."""

    def __init__(self, path: Path, state: Path, **options: str) -> None:
        self.definition, self.state = stream(path, tail="true", **options), state
        self.source = make(self.definition, state)
        self.at: SourceOffset = self.source.initial()
        self.seen: list[object] = []

    def poll(self) -> None:
        self.source._next_poll = 0.0  # however long the last one took
        end = self.source.latest(self.at, None)
        self.seen += [r[0] for r in rows(self.source, self.at, end)]
        self.at = end
        self.source.commit(end)

    def restart(self) -> None:
        self.source = make(self.definition, self.state)


STEPS = ["line", "line", "poll", "poll", "rename", "reopen", "restart", "open", "compact"]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(STEPS), max_size=30), st.booleans())
def test_every_line_is_read_once_however_a_log_is_rotated_by_renaming(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], whole_directory: bool
) -> None:
    root = tmp_path_factory.mktemp("rotation")
    log = Log(root / "logs")
    reader = Reader(log.directory if whole_directory else log.path, root / "state")
    renamed = False
    for step in steps:
        if step == "line":
            log.line()
        elif step == "open":
            log.line(ended=False)
            log.finish()
        elif step == "poll":
            reader.poll()
        elif step == "restart":
            reader.restart()
        elif step == "compact":
            reader.poll()
            reader.source.log.compact(reader.at["extent"], reader.source._present or set(), 0.0)
        elif step == "rename" and not renamed:
            log.line()
            reader.poll()  # what was never seen with a line in it is found nowhere
            log.line()
            log.rename(keep=100)
            renamed = True
        elif step == "reopen" and renamed:
            log.line()  # written to the renamed file, as programs do until they reopen it
            log.reopen()
            renamed = False
    reader.poll()
    reader.poll()
    log.file.close()
    assert sorted(map(str, reader.seen)) == sorted(map(str, range(log.count)))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.sampled_from(["line", "line", "poll", "rotate", "restart"]), max_size=25))
def test_every_line_is_read_once_when_a_log_is_copied_and_truncated(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    root = tmp_path_factory.mktemp("rotation")
    log = Log(root / "logs")
    reader = Reader(log.path, root / "state")
    for step in steps:
        if step == "line":
            log.line()
        elif step == "poll":
            reader.poll()
        elif step == "restart":
            reader.restart()
        else:
            log.line()
            reader.poll()  # what was never seen with a line in it is found nowhere
            log.line()
            log.copytruncate(keep=100)
    reader.poll()
    reader.poll()
    log.file.close()
    assert sorted(map(str, reader.seen)) == sorted(map(str, range(log.count)))


def test_an_epoch_that_was_planned_before_a_rotation_is_read_after_it(tmp_path: Path) -> None:
    for way in ("rename", "copytruncate"):
        log = Log(tmp_path / way)
        log.line()
        log.line()
        reader = Reader(log.path, tmp_path / f"state-{way}")
        end = reader.source.latest(reader.at, None)
        getattr(log, way)()
        log.reopen()
        log.line()
        for source in (reader.source, make(reader.definition, reader.state)):
            assert [r[0] for r in rows(source, reader.at, end)] == [0, 1]
        following = reader.source.latest(end, None)
        assert [r[0] for r in rows(reader.source, end, following)] == [2]
        log.file.close()


def lost(tmp_path: Path, **options: str) -> tuple[Log, Reader]:
    """A log that was truncated, with a line that was never read."""
    log = Log(tmp_path / "logs")
    log.line()
    reader = Reader(log.path, tmp_path / "state", **options)
    reader.poll()
    log.line()
    os.truncate(log.path, 0)
    log.line()
    return log, reader


def test_a_growing_file_whose_old_content_is_lost_is_an_error_that_can_be_skipped(tmp_path: Path) -> None:
    log, reader = lost(tmp_path)
    for _ in range(2):
        with pytest.raises(FileChanged) as caught:
            reader.poll()
        assert caught.value.params["path"] == str(log.path)
        reader.restart()
    reader.definition = stream(log.path, tail="true", on_bad_file="skip")
    reader.restart()
    reader.poll()
    assert reader.seen == [0, 2]
    assert (reader.source.log.bad_count, list(reader.source.log.bad)) == (1, [str(log.path)])
    reader.definition = stream(log.path, tail="true")
    reader.restart()
    log.line()
    reader.poll()
    assert reader.seen == [0, 2, 3]
    log.file.close()


def test_each_loss_of_a_growing_file_is_counted(tmp_path: Path) -> None:
    log, reader = lost(tmp_path, on_bad_file="skip")
    reader.poll()
    log.line()
    reader.poll()
    os.truncate(log.path, 0)
    log.line()
    reader.poll()
    assert reader.seen == [0, 2, 3, 4]
    assert reader.source.log.bad_count == 2
    log.file.close()


def test_a_single_file_may_be_missing_while_it_is_rotated_and_a_directory_may_not(tmp_path: Path) -> None:
    log = Log(tmp_path / "logs")
    log.line()
    reader = Reader(log.path, tmp_path / "state")
    reader.poll()
    log.line()
    log.rename()
    reader.poll()  # before the new file is there
    assert reader.seen == [0, 1]
    log.reopen()
    log.line()
    reader.poll()
    assert reader.seen == [0, 1, 2]
    log.file.close()
    whole = Reader(log.directory, tmp_path / "other")
    whole.poll()
    shutil.rmtree(log.directory)
    with pytest.raises(MissingFile):
        whole.poll()


def test_a_growing_file_in_a_copied_directory_is_followed_and_rotated_there(tmp_path: Path) -> None:
    log = Log(tmp_path / "logs")
    log.line()
    reader = Reader(log.path, tmp_path / "state")
    reader.poll()
    log.file.close()
    log.directory.rename(tmp_path / "old")
    shutil.copytree(tmp_path / "old", log.directory)
    reader.restart()
    log.reopen()
    log.line()
    reader.poll()
    log.line()
    log.rename()
    log.reopen()
    log.line()
    reader.poll()
    assert reader.seen == [0, 1, 2, 3]
    log.file.close()


def test_another_file_with_the_same_lines_and_the_inode_of_a_deleted_one_is_read(tmp_path: Path) -> None:
    data = tmp_path / "jobs"
    data.mkdir()
    reader = Reader(data, tmp_path / "state")
    for i in range(20):
        path = data / f"job{i}.log"
        path.write_text('{"a":1}\n{"a":2}\n')
        reader.poll()
        path.unlink()
    assert len(reader.seen) == 40


@pytest.mark.parametrize("slowly", [False, True])
def test_a_rotated_log_that_is_compressed_in_the_same_directory_is_not_read_again(tmp_path: Path, slowly: bool) -> None:
    log = Log(tmp_path / "logs")
    reader = Reader(log.directory, tmp_path / "state")
    for _ in range(3000):
        log.line()
    reader.poll()
    log.rename()
    log.reopen()
    log.line()
    reader.poll()
    older, content = log.directory / "app.log.1", gzip.compress((log.directory / "app.log.1").read_bytes())
    assert b"\n" in content
    with (log.directory / "app.log.2.gz").open("wb") as compressed:
        for part in (content[: len(content) // 2], content[len(content) // 2 :]):
            compressed.write(part)
            compressed.flush()
            if slowly:
                reader.poll()
    older.unlink()
    log.line()
    reader.poll()
    log.file.close()
    assert reader.seen == list(range(3002))


def test_a_path_of_compressed_files_cannot_tail(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"")
    for name in ("a.gz", "*.gz"):
        with pytest.raises(BadOption) as caught:
            check_stream(stream(tmp_path / name, tail="true"))
        assert caught.value.params["option"] == "tail"
        check_stream(stream(tmp_path / name, tail="true", codec="none"))
