"""How a file is recognized (by name, size and digest), and how rarely an idle stream checks its directory."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import FileChanged
from headrace.sources.extent import BLOCK, SEALED_BLOCKS, sampled
from headrace.sources.files import FULL, FULL_AT_MOST, POLL
from tests.sources.test_files import Clock, make, rows, stream, write


class Still:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def old_line(path: Path, inode: int | None = None, **facts: Any) -> str:
    """A log line of the version before digests of samples and times were stored."""
    data = path.read_bytes()
    head = data[:4096]
    line = {"path": str(path), "inode": path.stat().st_ino if inode is None else inode, "begin": 0, "end": len(data)}
    line |= {"head_bytes": len(head), "head": hashlib.blake2b(head, digest_size=16).hexdigest()}
    return json.dumps(line | {"sealed": True, "whole": False, "codec": ""} | facts) + "\n"


@pytest.mark.parametrize("copied", [False, True])
def test_a_log_of_the_old_form_is_read_and_continued(tmp_path: Path, copied: bool) -> None:
    data, state = tmp_path / "data", tmp_path / "state"
    data.mkdir()
    state.mkdir()
    write(data / "0", 0, 10)
    write(data / "1", 10, 500)
    write(data / "2", 500, 600)
    inode = 4711 if copied else None
    known = json.dumps({"known": json.loads(old_line(data / "0", inode)), "gone": None}) + "\n"
    head = json.dumps({"first": 1, "bytes": (data / "0").stat().st_size, "lines": 2}) + "\n"
    (state / "files.log").write_text(head + known + old_line(data / "1", inode) + old_line(data / "2", inode))
    clock = Clock()
    source = make(stream(data), state, clock)
    start, end = {"extent": 1, "pos": 0}, {"extent": 2, "pos": (data / "2").stat().st_size}
    assert [r[0] for r in rows(source, start, end)] == list(range(10, 600))
    assert source.exhausted(end)
    write(data / "3", 600, 700)
    again = make(stream(data), state, clock)
    assert [r[0] for r in rows(again, end, again.latest(end, None))] == list(range(600, 700))
    write(data / "0", 50, 60)
    clock.now += FULL
    with pytest.raises(FileChanged):
        again.latest(end, None)


@pytest.mark.parametrize("name", ["f", "f.gz"])
def test_a_directory_that_was_copied_or_restored_holds_the_same_files(tmp_path: Path, name: str) -> None:
    data, state = tmp_path / "data", tmp_path / "state"
    data.mkdir()
    text = b"".join(b'{"a":%d,"b":"x"}\n' % i for i in range(20_000))
    (data / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    source = make(stream(data), state)
    end = source.latest(source.initial(), None)
    data.rename(tmp_path / "old")
    shutil.copytree(tmp_path / "old", data, copy_function=shutil.copy)  # other inodes, other times
    restored = make(stream(data), state)
    assert len(rows(restored, restored.initial(), end)) == 20_000  # read before, to be read, to be read again
    assert restored.latest(end, None) == end
    assert restored.exhausted(end)


@pytest.mark.parametrize("size", [10, BLOCK, BLOCK * SEALED_BLOCKS, BLOCK * SEALED_BLOCKS + 1, 1 << 20])
def test_a_file_made_again_with_the_same_name_size_and_times_is_noticed(tmp_path: Path, size: int) -> None:
    data, clock = tmp_path / "data", Clock()
    data.mkdir()
    (data / "f").write_bytes(b"1" * (size - 1) + b"\n")
    times = (data / "f").stat().st_mtime_ns
    source = make(stream(data), tmp_path / "state", clock)
    end = source.latest(source.initial(), None)
    clock.now += FULL
    assert source.exhausted(end)
    (data / "f").unlink()
    (data / "f").write_bytes(b"2" * (size - 1) + b"\n")  # the file system often gives the inode again
    os.utime(data / "f", ns=(times, times))
    clock.now += FULL
    with pytest.raises(FileChanged):
        source.latest(end, None)
    with pytest.raises(FileChanged):
        make(stream(data), tmp_path / "state", clock).latest(end, None)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 300_000), st.sampled_from([2, SEALED_BLOCKS]), st.data())
def test_the_digest_sees_beginning_and_end_and_all_of_a_small_file(
    tmp_path_factory: pytest.TempPathFactory, size: int, blocks: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("digest") / "f"
    small = size <= blocks * BLOCK
    places = st.integers(0, size - 1)
    at = data.draw(places if small else places.filter(lambda at: at < BLOCK or at >= size - BLOCK))
    content = bytearray(size)
    digests = []
    for value in (0, 1):
        content[at] = value
        path.write_bytes(content)
        fd = os.open(path, os.O_RDONLY)
        digests.append(sampled(fd, size, blocks))
        os.close(fd)
    assert digests[0] != digests[1]


def test_an_idle_stream_looks_at_its_directory_and_lists_it_only_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, clock = tmp_path / "data", Still()
    data.mkdir()
    write(data / "0", 0, 3)
    for module in ("extent", "listing"):
        monkeypatch.setattr(f"headrace.sources.{module}.SETTLED_NS", -(10**18))  # as if all were old
    source = make(stream(data), tmp_path / "state", clock)  # type: ignore[arg-type]
    end = source.latest(source.initial(), None)
    monkeypatch.setattr("headrace.sources.files.CHEAP", 60.0)  # however busy this machine is
    lists: list[float] = []
    really = source.listing.paths

    def paths() -> list[str]:
        lists.append(clock.now)
        return really()

    monkeypatch.setattr(source.listing, "paths", paths)
    for _ in range(1000):  # 50 seconds of polls
        clock.now += 0.05
        assert source.latest(end, None) == end
        source.backlog(end)
        assert source.exhausted(end)
    assert 1 <= len(lists) <= 1 + 50 / FULL
    write(data / "1", 3, 6)
    clock.now += 1 + POLL
    assert len(rows(source, end, source.latest(end, None))) == 3  # at once, because the directory's time tells


def test_a_file_that_does_not_change_the_directory_time_is_found_by_the_next_full_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, clock = tmp_path / "data", Still()
    data.mkdir()
    source = make(stream(data), tmp_path / "state", clock)  # type: ignore[arg-type]
    start = source.initial()
    assert source.latest(start, None) == start
    monkeypatch.setattr(source.listing, "unchanged", lambda: True)  # as a network mount may say
    write(data / "1", 0, 6)
    clock.now += FULL - 1
    assert source.latest(start, None) == start
    clock.now += FULL_AT_MOST
    assert len(rows(source, start, source.latest(start, None))) == 6


@pytest.mark.parametrize("age", [0, 3])
def test_a_directory_time_proves_nothing_while_it_is_young(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: int
) -> None:
    data, clock = tmp_path / "data", Still()
    data.mkdir()
    then = time.time_ns() - age * 10**9
    monkeypatch.setattr("headrace.sources.listing._mark", lambda path: (then, then, 1))  # changes share one tick
    source = make(stream(data), tmp_path / "state", clock)  # type: ignore[arg-type]
    start = source.latest(source.initial(), None)
    write(data / "1", 0, 6)
    clock.now += 1 + POLL
    assert (source.latest(start, None) == start) == (age > 2)


def test_a_clock_that_is_set_back_blocks_nothing(tmp_path: Path) -> None:
    data, clock = tmp_path / "data", Still()
    data.mkdir()
    source = make(stream(data), tmp_path / "state", clock)  # type: ignore[arg-type]
    start = source.latest(source.initial(), None)
    clock.now -= 900
    write(data / "1", 0, 6)
    assert len(rows(source, start, source.latest(start, None))) == 6


def test_new_directories_of_a_deep_pattern_are_found(tmp_path: Path) -> None:
    source = make(stream(tmp_path / "in" / "*" / "**" / "*.json"), tmp_path / "state")
    (tmp_path / "in").mkdir()
    at = source.latest(source.initial(), None)
    for i, name in enumerate(("x/1.json", "x/y/z/2.json", "new/3.json")):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, i, i + 1)
        end = source.latest(at, None)
        assert [r[0] for r in rows(source, at, end)] == [i], name
        at = end
