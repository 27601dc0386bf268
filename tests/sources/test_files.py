"""The source `files`: any cut gives the same rows, the log survives, changed files are detected."""

from __future__ import annotations

import itertools
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import (
    BadOption,
    FileChanged,
    HeaderMismatch,
    HeadraceError,
    MissingFile,
    StateDamaged,
    UnreadableDirectory,
    UnreadableFile,
)
from headrace.formats import FORMATS
from headrace.formats.format_kind import Format
from headrace.formats.native import write_rows
from headrace.model.definitions import StreamDef
from headrace.model.schema import BIGINT, BINARY, BOOLEAN, STRING, Field, Schema
from headrace.sources import SOURCES, check_stream
from headrace.sources.extent import Extent
from headrace.sources.files import FULL, Files
from headrace.sources.reading import FileRange, RangeReader
from headrace.sources.source_kind import RawChunk, SourceOffset

SCHEMA = Schema((Field("a", BIGINT), Field("b", STRING)))


def stream(path: Path, fmt: str = "json", **options: str) -> StreamDef:
    return StreamDef("s", SCHEMA, None, 0, "files", fmt, {"path": str(path), **options})


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def make(definition: StreamDef, state: Path, clock: Clock | None = None) -> Files:
    source = SOURCES["files"].make(definition, state, clock or Clock())
    assert isinstance(source, Files)
    return source


def rows(source: Files, start: SourceOffset, end: SourceOffset, parallelism: int = 2) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for split in source.splits(start, end, parallelism):
        split = pickle.loads(pickle.dumps(split))
        for chunk in split.read(source.format):
            decoded = source.format.decode(chunk.data, [0, 1], chunk.origin, chunk.offset)
            found += zip(*(decoded.columns[i].to_pylist() for i in (0, 1)), strict=True)
    return found


def write(path: Path, begin: int, end: int) -> None:
    path.write_text("".join(json.dumps({"a": i, "b": f"r{i}"}) + "\n" for i in range(begin, end)))


def extent_of(path: Path, sealed: bool = True) -> Extent:
    fd = os.open(path, os.O_RDONLY)
    try:
        return Extent.of(fd, str(path), 0, os.fstat(fd).st_size, sealed=sealed)
    finally:
        os.close(fd)


def read_cut(path: Path, fmt: Format, cuts: list[int], chunk: int) -> list[RawChunk]:
    extent = extent_of(path)
    bounds = sorted({0, extent.end, *(c for c in cuts if c <= extent.end)})
    found: list[RawChunk] = []
    fd = os.open(path, os.O_RDONLY)
    try:
        for a, b in itertools.pairwise(bounds):
            found += RangeReader(fd, FileRange(extent, a, b), fmt, chunk).chunks()
    finally:
        os.close(fd)
    return found


def facts(chunks: list[RawChunk], fmt: Format) -> list[object]:
    """Rows and bad records in file order, whatever the chunks were."""
    out: list[object] = []
    for chunk in chunks:
        decoded = fmt.decode(chunk.data, [0, 1], chunk.origin, chunk.offset)
        out += zip(*(decoded.columns[i].to_pylist() for i in (0, 1)), strict=True)
        out += sorted((b.offset, b.reason, b.column, b.raw) for b in (*decoded.bad, *chunk.bad))
    return sorted(out, key=repr)


LINE = st.sampled_from(
    [b'{"a":1,"b":"x"}', b'{"b":"long enough to be cut in the middle","a":-7}', b"", b"{", b'{"a":"no"}', b"[1]",
     b'{"a":2,"b":"' + b"y" * 300 + b'"}', b"\r", b'{"a":3}\r']
)  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(st.lists(LINE, max_size=12), st.booleans(), st.lists(st.integers(0, 1500), max_size=6), st.integers(1, 400))
def test_any_cut_of_a_json_file_gives_the_same_rows_and_the_same_bad_records(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ended: bool, cuts: list[int], chunk: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "f"
    path.write_bytes(b"\n".join(lines) + (b"\n" if ended and lines else b""))
    fmt = FORMATS["json"].make(SCHEMA, {"max_record_bytes": "200"})
    whole = fmt.decode(path.read_bytes(), [0, 1], str(path), 0)
    expected: list[object] = [*zip(*(whole.columns[i].to_pylist() for i in (0, 1)), strict=True)]
    expected += [(b.offset, b.reason, b.column, b.raw) for b in whole.bad]
    assert facts(read_cut(path, fmt, cuts, chunk), fmt) == sorted(expected, key=repr)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 4096])
def test_every_range_size_gives_the_same_csv_rows_with_a_header(tmp_path: Path, size: int) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(b"\xef\xbb\xbfa,b\r\n" + b"".join(b'%d,"x,%d"\r\n' % (i, i) for i in range(30)) + b"99,last")
    fmt = FORMATS["csv"].make(SCHEMA, {"header": "true"})
    chunks = read_cut(path, fmt, list(range(0, 1000, size)), 64)
    found: list[tuple[object, ...]] = []
    for chunk in chunks:
        decoded = fmt.decode(chunk.data, [0, 1], chunk.origin, chunk.offset)
        assert len(decoded.bad) == 0
        found += zip(*(decoded.columns[i].to_pylist() for i in (0, 1)), strict=True)
    assert found == [*((i, f"x,{i}") for i in range(30)), (99, "last")]


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.sampled_from([b"a", b"@", b"#", b"@#", b"bcd" * 9, b"@#@#"]), max_size=40).map(b"".join),
    st.integers(1, 9), st.integers(0, 8), st.integers(1, 60),
)  # fmt: skip
def test_delimiters_of_several_bytes_are_found_wherever_they_are_cut(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, step: int, first: int, chunk: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "f"
    path.write_bytes(data)
    fmt = FORMATS["text"].make(Schema((Field("v", BINARY),)), {"record_delimiter": "@#", "max_record_bytes": "50"})
    chunks = read_cut(path, fmt, list(range(first, len(data), step)), chunk)
    expected = data.split(b"@#")
    expected = expected[:-1] if not expected[-1] else expected
    found = [v for c in chunks for v in fmt.decode(c.data, [0], c.origin, c.offset).columns[0].to_pylist()]
    assert found == [v for v in expected if len(v) <= 50]
    bad = [b for c in chunks for b in (*c.bad, *fmt.decode(c.data, [0], c.origin, c.offset).bad)]
    assert len(bad) == sum(len(v) > 50 for v in expected)


@given(st.integers(0, 30), st.integers(0, 12), st.lists(st.integers(0, 400), max_size=5), st.integers(1, 60))
@settings(deadline=None, max_examples=60)
def test_native_rows_of_one_size_are_read_wherever_a_file_is_cut(
    tmp_path_factory: pytest.TempPathFactory, count: int, rest: int, cuts: list[int], chunk: int
) -> None:
    schema = Schema((Field("a", BIGINT), Field("b", BOOLEAN)))
    table = pa.table({"a": range(count), "b": [None] * count}, schema=schema.arrow)
    data = write_rows(schema, table) + b"\1" * min(rest, 9)  # ends in the middle of a row
    path = tmp_path_factory.mktemp("native") / "f"
    path.write_bytes(data)
    fmt = FORMATS["native"].make(schema, {})
    assert not fmt.in_order
    found = facts(read_cut(path, fmt, cuts, chunk), fmt)
    assert found == facts([RawChunk(str(path), 0, data)], fmt)
    assert len(found) == count + (rest > 0)


def test_a_record_longer_than_a_chunk_is_reported_once_and_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b'{"a":1}\n' + b"z" * 100_000 + b'\n{"a":2}\n')
    fmt = FORMATS["json"].make(SCHEMA, {"max_record_bytes": "500"})
    for step in (700, 5_000, 100_003, 200_000):
        chunks = read_cut(path, fmt, list(range(0, 110_000, step)), 600)
        assert max(len(c.data) for c in chunks) <= 600
        assert [(b.offset, b.reason) for c in chunks for b in c.bad] == [(8, "record_too_long")]
        assert [r for c in chunks for r in fmt.decode(c.data, [0], "", 0).columns[0].to_pylist()] == [1, 2]


def test_new_files_are_read_as_they_appear_and_hidden_names_never(tmp_path: Path) -> None:
    data, state = tmp_path / "data", tmp_path / "state"
    data.mkdir()
    source = make(stream(data), state)
    start = source.initial()
    assert source.latest(start, None) == start
    write(data / "one.json", 0, 10)
    write(data / ".half", 900, 910)
    write(data / "_tmp", 900, 910)
    first = source.latest(start, None)
    assert [r[0] for r in rows(source, start, first)] == list(range(10))
    assert source.exhausted(first)
    write(data / "two.json", 10, 20)
    assert not source.exhausted(first)
    second = source.latest(first, None)
    assert [r[0] for r in rows(source, first, second)] == list(range(10, 20))
    assert source.backlog(start) == sum((data / n).stat().st_size for n in ("one.json", "two.json"))


def test_a_restart_reads_the_same_bytes_for_the_same_offsets(tmp_path: Path) -> None:
    data, state = tmp_path / "data", tmp_path / "state"
    data.mkdir()
    for i in range(5):
        write(data / f"f{i}", i * 100, i * 100 + 100)
        os.utime(data / f"f{i}", (1000 + (5 - i), 1000 + (5 - i)))
    source = make(stream(data), state)
    start = source.initial()
    cuts = [start]
    while True:
        following = source.latest(cuts[-1], 700)
        if following == cuts[-1]:
            break
        cuts.append(json.loads(json.dumps(following)))
    expected = [rows(source, a, b) for a, b in itertools.pairwise(cuts)]
    assert [r[0] for part in expected for r in part] == [
        k for i in (4, 3, 2, 1, 0) for k in range(i * 100, i * 100 + 100)
    ]
    again = make(stream(data), state)
    assert [rows(again, a, b, 3) for a, b in itertools.pairwise(cuts)] == expected
    assert again.exhausted(cuts[-1])


def test_a_log_line_cut_by_a_crash_is_forgotten(tmp_path: Path) -> None:
    data, state = tmp_path / "data", tmp_path / "state"
    data.mkdir()
    write(data / "f", 0, 10)
    make(stream(data), state).latest({"extent": 0, "pos": 0}, None)
    log = state / "files.log"
    whole = log.read_bytes()
    log.write_bytes(whole + whole[:20])
    source = make(stream(data), state)
    assert len(source.log.extents) == 1
    write(data / "g", 10, 20)
    end = source.latest(source.initial(), None)
    assert len(rows(make(stream(data), state), source.initial(), end)) == 20


def test_a_large_file_is_cut_for_all_tasks_and_a_small_one_is_not(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write(data / "f", 0, 60_000)
    source = make(stream(data), tmp_path / "state")
    end = source.latest(source.initial(), None)
    assert len(source.splits(source.initial(), end, 4)) == 4
    assert sorted(rows(source, source.initial(), end, 4))[-1][0] == 59_999
    little = source.latest(source.initial(), 1000)
    assert len(source.splits(source.initial(), little, 4)) == 1


def replaced(path: Path) -> None:
    fresh = path.with_name(".fresh")
    write(fresh, 50, 60)
    fresh.rename(path)


def shrank(path: Path) -> None:
    os.truncate(path, 5)


def rewritten(path: Path) -> None:
    size = path.stat().st_size
    with open(path, "r+b") as f:
        f.write(b" " * size)


def grew(path: Path) -> None:
    with open(path, "ab") as f:
        f.write(b'{"a":1}\n')


@pytest.mark.parametrize("change", [replaced, shrank, rewritten, grew])
def test_a_file_that_changed_after_it_was_listed_is_named(tmp_path: Path, change: Callable[[Path], None]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write(data / "f", 0, 10)
    source = make(stream(data), tmp_path / "state")
    end = source.latest(source.initial(), None)
    change(data / "f")
    with pytest.raises(FileChanged) as caught:
        rows(source, source.initial(), end)
    assert caught.value.params["path"] == str(data / "f")


def test_a_replaced_file_is_noticed_by_the_next_full_listing(tmp_path: Path) -> None:
    data, clock = tmp_path / "data", Clock()
    data.mkdir()
    write(data / "f", 0, 10)
    source = make(stream(data), tmp_path / "state", clock)
    end = source.latest(source.initial(), None)
    replaced(data / "f")
    clock.now += FULL
    with pytest.raises(FileChanged):
        source.latest(end, None)


@pytest.mark.parametrize("change", [grew, shrank, replaced], ids=lambda f: f.__name__)
def test_a_file_that_changes_after_it_was_read_is_noticed_by_the_next_full_listing(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    data, clock = tmp_path / "data", Clock()
    data.mkdir()
    write(data / "a.json", 0, 5)
    source = make(stream(data), tmp_path / "state", clock)
    end = source.latest(source.initial(), None)
    assert len(rows(source, source.initial(), end)) == 5
    source.commit(end)
    change(data / "a.json")
    clock.now += FULL
    with pytest.raises(FileChanged):
        source.exhausted(end)


def test_a_file_is_known_again_where_directory_entries_have_inodes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make directory entries differ from stat, as on overlay file systems."""
    write(tmp_path / "a.json", 0, 5)

    class Entry:
        name, path = "a.json", str(tmp_path / "a.json")

        def is_file(self) -> bool:
            return True

        def inode(self) -> int:
            return 4711

    source = make(stream(tmp_path), tmp_path / ".state")
    monkeypatch.setattr(source.listing, "_scan", lambda directory: [Entry()])
    end = source.latest(source.initial(), None)
    assert len(rows(source, source.initial(), end)) == 5
    assert source.exhausted(end)


def test_a_file_that_is_gone_before_it_was_read_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write(data / "f", 0, 10)
    source = make(stream(data), tmp_path / "state")
    end = source.latest(source.initial(), None)
    (data / "f").unlink()
    with pytest.raises(MissingFile):
        rows(source, source.initial(), end)


def test_a_file_deleted_during_a_listing_is_no_error_and_an_unreadable_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write(data / "f", 0, 10)
    source = make(stream(data), tmp_path / "state")
    problem: OSError = FileNotFoundError()
    really = os.open

    def fails(path: str, flags: int) -> int:
        if path == str(data / "f"):
            raise problem
        return really(path, flags)

    monkeypatch.setattr(os, "open", fails)
    assert source.latest(source.initial(), None) == source.initial()
    problem = PermissionError()
    with pytest.raises(UnreadableFile) as caught:
        source.latest(source.initial(), None)
    assert caught.value.params["path"] == str(data / "f")


def test_a_growing_file_is_followed_and_its_open_record_waits(tmp_path: Path) -> None:
    path = tmp_path / "f.log"
    path.write_bytes(b'{"a":1}\n{"a":2}\n{"a"')
    source = make(stream(path, tail="true"), tmp_path / "state")
    first = source.latest(source.initial(), None)
    assert [r[0] for r in rows(source, source.initial(), first)] == [1, 2]
    assert source.latest(first, None) == first
    with open(path, "ab") as f:
        f.write(b':3}\n{"a":4')
    second = source.latest(first, None)
    assert [r[0] for r in rows(source, first, second)] == [3]
    os.truncate(path, 3)
    with pytest.raises(FileChanged):
        source.latest(second, None)


def test_listing_known_files_opens_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for i in range(300):
        write(data / f"f{i}", i, i + 1)
    monkeypatch.setattr("headrace.sources.extent.SETTLED_NS", -(10**18))  # else young files are compared by digest
    clock = Clock()
    source = make(stream(data), tmp_path / "state", clock)
    end = source.latest(source.initial(), None)

    def refuse(*_: object) -> int:
        raise AssertionError("a known file was opened")

    monkeypatch.setattr(os, "open", refuse)
    for _ in range(2):
        clock.now += FULL
        assert source.latest(end, None) == end
        assert source.exhausted(end)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"path": "missing"}, MissingFile),
        ({"path": "missing/*.json"}, MissingFile),
        ({"path": "f", "tail": "x"}, BadOption),
    ],
)  # fmt: skip
def test_create_refuses_what_can_never_be_read(
    tmp_path: Path, options: dict[str, str], kind: type[HeadraceError]
) -> None:
    path = str(tmp_path / options.pop("path"))
    with pytest.raises(kind):
        check_stream(StreamDef("s", SCHEMA, None, 0, "files", "json", {"path": path, **options}))


def test_create_refuses_a_directory_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(UnreadableDirectory):
        check_stream(stream(tmp_path))


def test_a_glob_without_matches_is_allowed_and_finds_files_later(tmp_path: Path) -> None:
    definition = StreamDef("s", SCHEMA, None, 0, "files", "json", {"path": str(tmp_path / "*.json")})
    check_stream(definition)
    source = make(definition, tmp_path / "state")
    write(tmp_path / "x.json", 0, 3)
    write(tmp_path / "x.other", 10, 13)
    end = source.latest(source.initial(), None)
    assert [r[0] for r in rows(source, source.initial(), end)] == [0, 1, 2]


def test_a_header_that_names_other_columns_is_refused_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f.csv").write_text("b,a\nx,1\n")
    source = make(stream(tmp_path / "d", "csv", header="true"), tmp_path / "state")
    with pytest.raises(HeaderMismatch) as caught:
        source.latest(source.initial(), None)
    assert caught.value.params["path"] == str(tmp_path / "d" / "f.csv")


@pytest.mark.parametrize("on_bad_file", ["fail", "skip"])
def test_good_files_of_a_listing_that_failed_are_read_when_the_bad_one_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_bad_file: str
) -> None:
    monkeypatch.setattr("headrace.sources.extent.SETTLED_NS", -(10**18))
    data, clock = tmp_path / "data", Clock()
    data.mkdir()
    for i in range(8):
        (data / f"{i}.csv").write_text(f"a,b\n{i},x\n" if i != 4 else "b,a\nx,1\n")
    source = make(stream(data, "csv", header="true", on_bad_file=on_bad_file), tmp_path / "state", clock)
    if on_bad_file == "fail":
        with pytest.raises(HeaderMismatch):
            source.latest(source.initial(), None)
        (data / "4.csv").unlink()
        clock.now += FULL
    end = source.latest(source.initial(), None)
    assert sorted(str(r[0]) for r in rows(source, source.initial(), end)) == list("0123567")


def test_a_directory_whose_files_cannot_be_accessed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write(data / "f", 0, 3)
    source = make(stream(data, on_bad_file="skip"), tmp_path / "state")
    really = os.stat

    def denied(path: Any, *rest: Any, **more: Any) -> os.stat_result:
        if str(path) == str(data / "f"):
            raise PermissionError(13, "Permission denied")
        return really(path, *rest, **more)

    monkeypatch.setattr(os, "stat", denied)
    with pytest.raises(UnreadableDirectory):
        source.latest(source.initial(), None)


@pytest.mark.parametrize("tail", ["false", "true"])
def test_a_large_directory_is_exhausted_when_it_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail: str
) -> None:
    monkeypatch.setattr("headrace.sources.files.CHEAP", -1.0)  # as if every listing took long
    for module in ("extent", "listing"):
        monkeypatch.setattr(f"headrace.sources.{module}.SETTLED_NS", -(10**18))
    data, clock = tmp_path / "data", Clock()
    data.mkdir()
    write(data / "f", 0, 3)
    source = make(stream(data, tail=tail), tmp_path / "state", clock)
    end = source.latest(source.initial(), None)
    clock.now += 60
    assert source.latest(end, None) == end
    monkeypatch.setattr(clock, "now", clock.now - 1)  # the next look is not due yet
    assert source.exhausted(end)


@pytest.mark.parametrize("tail", ["false", "true"])
def test_start_latest_skips_existing_files_and_means_the_same_after_a_crash(tmp_path: Path, tail: str) -> None:
    inputs, state = tmp_path / "in", tmp_path / "state"
    inputs.mkdir()
    write(inputs / "0", 0, 5)
    source = make(stream(inputs, start="latest", tail=tail), state)
    first = source.initial()
    assert source.latest(first, None) == first
    write(inputs / "1", 5, 8)
    again = make(stream(inputs, start="latest", tail=tail), state)  # died before its first epoch was logged
    assert again.initial() == first
    end = again.latest(first, None)
    assert [a for a, _ in rows(again, first, end)] == [5, 6, 7]


def test_start_latest_of_an_empty_directory_is_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    source = make(stream(tmp_path / "in", start="latest"), tmp_path / "state")
    first = source.initial()
    write(tmp_path / "in" / "0", 0, 2)
    assert [a for a, _ in rows(source, first, source.latest(first, None))] == [0, 1]


def test_a_start_that_cannot_be_read_is_an_error_and_one_without_a_checksum_is_not(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "0", 0, 5)
    source = make(stream(tmp_path / "in", start="latest"), tmp_path / "state")
    first, file = source.initial(), tmp_path / "state" / "start.json"
    text = file.read_text()
    file.write_text(text.splitlines()[0])  # as earlier versions wrote it
    assert source.initial() == first
    for damage in ("", "{", "[1]", text.replace('"pos"', '"end"')):
        file.write_text(damage)
        with pytest.raises(StateDamaged) as caught:
            source.initial()
        assert caught.value.params["path"] == str(file)


def test_start_is_earliest_or_latest(tmp_path: Path) -> None:
    with pytest.raises(BadOption):
        make(stream(tmp_path, start="yesterday"), tmp_path / "state")
