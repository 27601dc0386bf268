"""One bad file, on the way a user meets it: the error names it, the advice works, 'skip' leaves it out exactly once."""

from __future__ import annotations

import errno
import gzip
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import StreamFailed
from headrace.formats import FORMATS
from headrace.model.definitions import StreamDef
from headrace.model.schema import BIGINT, Field, Schema
from headrace.model.status import StreamStatus
from headrace.sources import SOURCES
from headrace.sources.files import Files
from tests.shared.mini import Crash, Mini

CSV = "source = 'files', format = 'csv', header = 'true'"


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    declare(mini)
    yield mini
    mini.hub.close()


def declare(mini: Mini, on_bad_file: str = "fail") -> None:
    """The stream, its sink and two pipelines of one lane and of none; again to change the option."""
    mini.hub.sql(
        f"CREATE OR REPLACE STREAM s (a BIGINT, b STRING) WITH ({CSV}, path = '{mini.directory.parent / 'in'}', "
        f"on_bad_file = '{on_bad_file}'); CREATE SINK IF NOT EXISTS out WITH (type = 'kept');"
        "CREATE PIPELINE IF NOT EXISTS p INTO out AS SELECT a FROM s;"
        "CREATE PIPELINE IF NOT EXISTS n INTO out AS SELECT count(*) AS n FROM s"
    )


def put(mini: Mini, name: str, *numbers: int, header: str = "a,b") -> Path:
    path = mini.directory.parent / "in" / name
    text = (header + "\n" + "".join(f"{n},x\n" for n in numbers)).encode()
    fresh = path.with_name(f".{name}")
    fresh.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    fresh.rename(path)
    return path


def look(mini: Mini) -> None:
    """Run what there is to do, with a full listing first."""
    source = mini.query.planner.source if mini.query is not None else None
    if isinstance(source, Files):
        source._next_poll = source._next_full = 0.0
    mini.drain()


def restart(mini: Mini) -> None:
    mini.hub.close(drain=False)
    mini.open()
    look(mini)


def output(mini: Mini, name: str = "p") -> list[Any]:
    return [row[0] for row in mini.output(mini.hub.record(name).definition.instance)]


def info(mini: Mini) -> StreamStatus:
    return mini.hub.streams["s"].status()


def test_a_file_with_another_header_stops_the_stream_until_it_is_corrected(mini: Mini) -> None:
    put(mini, "1.csv", 1)
    look(mini)
    for name in ("2.csv", "2.csv.gz"):
        bad = put(mini, name, 666, header="x,y")
        look(mini)
        assert "[HEADER_MISMATCH]" in info(mini).problem
        assert str(bad) in info(mini).problem
        put(mini, name, 2 if name == "2.csv" else 3)
        restart(mini)
    assert output(mini) == [1, 2, 3]
    assert output(mini, "n")[-1] == 3


def test_a_file_with_another_header_can_be_taken_away(mini: Mini) -> None:
    put(mini, "1.csv", 1)
    bad = put(mini, "2.csv", 666, header="x,y")
    look(mini)
    assert output(mini) == []
    bad.unlink()
    restart(mini)
    assert output(mini) == [1]


def test_a_header_mismatch_is_left_out_counted_and_named_and_read_when_it_is_corrected(mini: Mini) -> None:
    declare(mini, "skip")
    put(mini, "1.csv", 1)
    bad = put(mini, "2.csv", 666, header="x,y")
    put(mini, "3.csv", 3)
    look(mini)
    assert sorted(output(mini)) == [1, 3]
    assert info(mini).skipped_files == 1
    assert info(mini).bad_files[str(bad)].startswith("[HEADER_MISMATCH]")
    described = mini.hub.sql("DESCRIBE STREAM s")[0].render()
    assert f"bad file {bad}" in described
    assert "skipped_files" in described
    restart(mini)
    assert info(mini).skipped_files == 1
    put(mini, "2.csv", 2)
    restart(mini)
    assert sorted(output(mini)) == [1, 2, 3]
    assert (info(mini).skipped_files, info(mini).bad_files) == (1, {})


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def replaced(path: Path) -> None:
    path.write_bytes(gzip.compress(b"a,b\n" + b"7,y\n" * 50) if path.suffix == ".gz" else b"a,b\n777,y\n")


def taken_away(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    os.truncate(path, 0)


BREAKS = {f.__name__: f for f in (truncated, replaced, taken_away, emptied)}


@pytest.mark.parametrize("name", ["2.csv", "2.csv.gz"])
@pytest.mark.parametrize("change", BREAKS)
def test_a_file_that_breaks_after_its_epoch_was_planned_is_left_out_as_the_error_advises(
    mini: Mini, name: str, change: str
) -> None:
    put(mini, "1.csv", 1)
    path = put(mini, name, *range(20, 30))
    mini.checkpoint.crash = "logged"
    with pytest.raises(Crash):
        look(mini)
    BREAKS[change](path)
    restart(mini)
    for _ in range(2):  # it fails again and again, with advice
        assert str(path) in info(mini).problem
        assert "on_bad_file = 'skip'" in info(mini).problem
        assert output(mini) == []
        restart(mini)
    declare(mini, "skip")
    put(mini, "3.csv", 3)
    look(mini)
    assert sorted(output(mini)) == [1, 3]
    assert (info(mini).skipped_files, list(info(mini).bad_files)) == (1, [str(path)])
    assert output(mini, "n")[-1] == 2
    declare(mini, "fail")
    put(mini, "4.csv", 4)
    look(mini)
    assert sorted(output(mini)) == [1, 3, 4]
    assert info(mini).problem == ""


def test_a_damaged_compressed_file_is_left_out_whole_and_read_when_a_good_copy_comes(mini: Mini) -> None:
    declare(mini, "skip")
    lines = b"a,b\n" + b"".join(b"%d,%s\n" % (i, os.urandom(40).hex().encode()) for i in range(100_000))
    good = gzip.compress(lines, 1)
    assert len(lines) > 8 << 20
    path = mini.directory.parent / "in" / "1.csv.gz"
    path.write_bytes(good[:-100])  # the damage comes after chunks that are decoded first
    put(mini, "2.csv", 500_000)
    look(mini)
    assert output(mini) == [500_000]
    assert info(mini).bad_files[str(path)].startswith("[DAMAGED_STREAM]")
    path.write_bytes(good)
    look(mini)
    assert sorted(output(mini)) == [*range(100_000), 500_000]


def test_a_file_that_may_not_be_read_is_left_out_until_it_may(mini: Mini, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(mini, "skip")
    path = put(mini, "1.csv", 1)
    really, denied = os.open, {str(path)}

    def open_file(path: Any, *rest: Any, **more: Any) -> int:
        if path in denied:
            raise PermissionError(13, "Permission denied")
        return really(path, *rest, **more)

    monkeypatch.setattr(os, "open", open_file)
    put(mini, "2.csv", 2)
    look(mini)
    assert output(mini) == [2]
    assert info(mini).bad_files[str(path)].startswith("[UNREADABLE_FILE]")
    denied.clear()
    os.chmod(path, 0o640)
    look(mini)
    assert sorted(output(mini)) == [1, 2]


def test_a_file_that_changes_after_it_was_read_stops_the_stream_until_it_is_what_it_was(mini: Mini) -> None:
    path = put(mini, "1.csv", 1)
    look(mini)
    before = path.read_bytes()
    put(mini, "1.csv", 2)  # the same size
    look(mini)
    assert "[FILE_CHANGED]" in info(mini).problem
    path.write_bytes(before)
    put(mini, "2.csv", 2)
    restart(mini)
    assert output(mini) == [1, 2]
    put(mini, "1.csv", 3)
    restart(mini)
    assert "[FILE_CHANGED]" in info(mini).problem
    path.rename(path.with_name("3.csv"))  # the new content gets a name of its own
    restart(mini)
    assert output(mini) == [1, 2, 3]
    assert info(mini).problem == ""


def test_a_file_that_changes_after_it_was_read_is_counted_and_not_read_again(mini: Mini) -> None:
    declare(mini, "skip")
    path = put(mini, "1.csv", 1)
    look(mini)
    before = path.read_bytes()
    put(mini, "1.csv", 2)
    put(mini, "2.csv", 3)
    look(mini)
    assert sorted(output(mini)) == [1, 3]
    assert info(mini).bad_files[str(path)].startswith("[FILE_CHANGED]")
    path.write_bytes(before)
    look(mini)
    restart(mini)
    assert (info(mini).skipped_files, info(mini).bad_files) == (1, {})
    assert sorted(output(mini)) == [1, 3]


def test_skip_takes_effect_on_a_running_stream(mini: Mini) -> None:
    put(mini, "1.csv", 1)
    look(mini)
    query = mini.query
    declare(mini, "skip")
    put(mini, "2.csv", 666, header="x,y")
    look(mini)
    assert mini.query is query
    assert info(mini).problem == ""
    assert info(mini).skipped_files == 1


def test_a_script_that_changes_the_option_and_fails_is_taken_back_and_keeps_the_progress(
    mini: Mini, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(mini, "1.csv", 1)
    look(mini)

    def refuse(*_: object) -> None:
        raise StreamFailed("for the test")

    with monkeypatch.context() as patch:
        patch.setattr(type(mini.hub.runtime("s")), "wait_planned", refuse)
        with pytest.raises(StreamFailed):
            declare(mini, "skip")
    assert mini.hub.catalog.streams["s"].options["on_bad_file"] == "fail"
    put(mini, "2.csv", 2)
    restart(mini)
    assert output(mini) == [1, 2]


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(st.booleans(), min_size=1, max_size=4),
    broken=st.dictionaries(st.integers(0, 3), st.sampled_from(sorted(BREAKS)), max_size=3),
    crashes=st.lists(st.sampled_from(["", "logged", "tasks", "lanes", "committed"]), max_size=4),
)
def test_whatever_breaks_and_dies_every_other_file_is_read_exactly_once(
    tmp_path_factory: pytest.TempPathFactory, names: list[bool], broken: dict[int, str], crashes: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("bad")
        (root / "in").mkdir()
        mini = Mini(root / "state", patch)
        declare(mini, "skip")
        paths = [put(mini, f"{i}.csv{'.gz' if zipped else ''}", i * 10, i * 10 + 1) for i, zipped in enumerate(names)]
        mini.checkpoint.crash = "logged"
        with pytest.raises(Crash):
            look(mini)
        for i, how in broken.items():
            if i < len(paths):
                BREAKS[how](paths[i])
        mini.hub.close(drain=False)
        mini.open()
        for place in [*crashes, ""]:
            mini.checkpoint.crash = place
            try:
                look(mini)
            except Crash:
                mini.crash()
        look(mini)
        good = [i for i in range(len(paths)) if i not in broken]
        assert sorted(output(mini)) == [n for i in good for n in (i * 10, i * 10 + 1)]
        assert (output(mini, "n") or [0])[-1] == 2 * len(good)
        assert info(mini).skipped_files == len(paths) - len(good)
        mini.hub.close()


@pytest.mark.parametrize("name", ["1.csv", "1.csv.gz"])
def test_a_read_error_that_may_pass_is_no_bad_file_and_names_it(tmp_path: Path, name: str) -> None:
    schema = Schema((Field("a", BIGINT),))
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / name
    path.write_bytes(gzip.compress(b"1\n2\n") if name.endswith(".gz") else b"1\n2\n")
    options = {"path": str(tmp_path / "in"), "on_bad_file": "skip"}
    stream = StreamDef("s", schema, None, 0, "files", "csv", options)
    source = SOURCES["files"].make(stream, tmp_path, lambda: 0.0)
    (split,) = source.splits(source.initial(), source.latest(source.initial(), None), 1)

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.sources.reading.RangeReader.read", broken)
        patch.setattr("headrace.formats.codecs.Decompressor._arrow_stream", lambda self, codec: broken)
        with pytest.raises(OSError, match=re.escape(str(path))) as problem:
            list(split.read(FORMATS["csv"].make(schema, {})))
    assert problem.value.errno == errno.EIO
    assert len(list(split.read(FORMATS["csv"].make(schema, {})))) == 1
