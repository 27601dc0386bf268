"""The source `buffers`: every order of the files gives the rows of the bytes in order, also after a restart."""

from __future__ import annotations

import os
import pickle
import random
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import BadOption, BadSequence, FileChanged, MissingFile, UnreadableDirectory
from headrace.formats import FORMATS
from headrace.model.definitions import StreamDef
from headrace.model.schema import STRING, Field, Schema
from headrace.sources import SOURCES, buffers, check_stream
from headrace.sources.buffers import Buffers
from headrace.sources.source_kind import SourceOffset

SCHEMA = Schema((Field("a", STRING), Field("b", STRING)))


def stream(path: Path, **options: str) -> StreamDef:
    return StreamDef("s", SCHEMA, None, 0, "buffers", "csv", {"path": str(path), **options})


def make(definition: StreamDef, state: Path) -> Buffers:
    source = SOURCES["buffers"].make(definition, state, clock=iter(range(10**9)).__next__)
    assert isinstance(source, Buffers)
    return source


def rows(definition: StreamDef, source: Buffers, start: SourceOffset, end: SourceOffset) -> list[tuple[object, ...]]:
    fmt = FORMATS["csv"].make(SCHEMA, definition.options)
    found: list[tuple[object, ...]] = []
    for split in source.splits(start, end, 3):
        for chunk in pickle.loads(pickle.dumps(split)).read(fmt):
            decoded = fmt.decode(chunk.data, [0, 1], chunk.origin, chunk.offset)
            assert not decoded.bad
            found += zip(*(decoded.columns[i].to_pylist() for i in (0, 1)), strict=True)
    return found


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


DIALECTS = {
    "lines": {},
    "long": {"record_delimiter": "<>;"},
    "quoted": {"multiline": "true"},
}


@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=12)
@given(rng=st.randoms(use_true_random=False))
def test_any_order_any_cut_and_a_restart_give_the_rows_of_the_bytes(name: str, rng: random.Random) -> None:
    with tempfile.TemporaryDirectory() as directory:
        _any_order(Path(directory), name, rng)


def _any_order(root: Path, name: str, rng: random.Random) -> None:
    options = DIALECTS[name]
    ending = options.get("record_delimiter", "\n")
    (root / "in").mkdir()
    definition = stream(root / "in", last_record="keep", **options)
    check_stream(definition)
    files, wanted = [], []
    for origin in range(rng.randrange(1, 4)):
        mine = [(f"o{origin}", f"{i}\n,x" if name == "quoted" else f"{i}<x") for i in range(rng.randrange(1, 12))]
        wanted += mine
        quote = '"' if name == "quoted" else ""
        text = ending.join(f"{a},{quote}{b}{quote}" for a, b in mine).encode()
        cuts = [0, *sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(20))), len(text)]
        pieces = [text[a:b] for a, b in pairwise(cuts)]
        for i, piece in enumerate(pieces):
            files.append((f"conn.{origin}.{i + 1}.{'end' if i == len(pieces) - 1 else 'buf'}", piece))
    rng.shuffle(files)
    source, at, found = make(definition, root / "state"), {"unit": 0}, []
    for number, (file, piece) in enumerate(files):
        put(root / "in" / file, piece)
        os.utime(root / "in" / file, ns=(number * 10**9, number * 10**9))
        if rng.random() < 0.2:
            source = make(definition, root / "state")  # as after a crash
        if rng.random() < 0.5:
            end = source.latest(at, rng.choice([None, 1, 20]))
            found += rows(definition, make(definition, root / "state") if rng.random() < 0.3 else source, at, end)
            at = end
    end = source.latest(at, None)
    found += rows(definition, source, at, end)
    assert source.exhausted(end)
    assert source.backlog(end) == 0
    assert Counter(found) == Counter(wanted)
    assert source.shredder.origins == source.shredder.waiting == 0


def test_a_duplicate_and_zero_are_errors_that_name_the_file(tmp_path: Path) -> None:
    source = make(stream(tmp_path), tmp_path / "state")
    put(tmp_path / "a.1.buf", b"x,y\n")
    end = source.latest({"unit": 0}, None)
    for name in ("a.01.buf", "a.0.buf", "a.99999999999999999999.buf"):
        put(tmp_path / name, b"x,y\n")
        with pytest.raises(BadSequence) as problem:
            source.latest(end, None)
        assert problem.value.params["path"] == str(tmp_path / name)
        (tmp_path / name).unlink()
    put(tmp_path / "a.2.buf", b"x,z\n")
    assert source.latest(end, None) == {"unit": 2}


def test_buffers_that_vanish_or_change_are_noticed(tmp_path: Path) -> None:
    definition = stream(tmp_path)
    source = make(definition, tmp_path / "state")
    put(tmp_path / "a.1.buf", b"x,y\n")
    end = source.latest({"unit": 0}, None)
    put(tmp_path / "a.1.buf", b"x,yz\n")
    with pytest.raises(FileChanged):
        rows(definition, source, {"unit": 0}, end)
    (tmp_path / "a.1.buf").unlink()
    with pytest.raises(MissingFile):
        rows(definition, source, {"unit": 0}, end)


def test_an_origin_that_has_ended_takes_no_more_and_a_restart_agrees(tmp_path: Path) -> None:
    definition = stream(tmp_path)
    source = make(definition, tmp_path / "state")
    put(tmp_path / "a.1.end", b"x,y\n")
    end = source.latest({"unit": 0}, None)
    for name in ("a.01.buf", "a.2.buf"):
        put(tmp_path / "b.1.buf", b"1,2\n")
        put(tmp_path / name, b"x,z\n")
        for _ in range(2):
            with pytest.raises(BadSequence) as problem:
                source.latest(end, None)
            source = make(definition, tmp_path / "state")
            found = problem.value.params
            assert (found["path"], found["why"]) == (str(tmp_path / name), "its_origin_has_ended")
        (tmp_path / name).unlink()
    assert make(definition, tmp_path / "state").latest(end, None) == {"unit": 2}


def test_a_file_that_is_still_being_written_is_read_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = stream(tmp_path)
    source = make(definition, tmp_path / "state")
    put(tmp_path / "a.2.buf", b"half")
    put(tmp_path / "a.1.buf", b"x,y\n")
    real = Path.read_bytes
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda path: real(path) + b"!" * (path.name == "a.2.buf"))
        assert source.latest({"unit": 0}, None) == {"unit": 1}
        assert not source.exhausted({"unit": 1})
    put(tmp_path / "a.2.buf", b"x,z\n")
    assert source.latest({"unit": 1}, None) == {"unit": 2}
    assert source.exhausted({"unit": 2})
    assert rows(definition, source, {"unit": 0}, {"unit": 2}) == [("x", "y"), ("x", "z")]


@settings(max_examples=6)
@given(rng=st.randoms(use_true_random=False))
def test_what_is_committed_and_gone_is_forgotten_and_the_rest_keeps_its_numbers(rng: random.Random) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffers, "FORGET_AT", 4)
        _forgetting(Path(directory), rng)


def _forgetting(root: Path, rng: random.Random) -> None:
    (root / "in").mkdir()
    definition = stream(root / "in")
    source, at, committed, row = make(definition, root / "state"), {"unit": 0}, {"unit": 0}, 0
    wanted: list[tuple[object, ...]] = []
    found: list[tuple[object, ...]] = []
    for turn in range(20):
        name = f"o{turn % 7}" if turn % 2 else f"n{turn}"  # some names come back
        if not list((root / "in").glob(f"{name}.*")):
            pieces = []
            for _ in range(rng.randrange(1, 4)):
                pieces += [f"{row},".encode(), b"x\n"]
                wanted.append((str(row), "x"))
                row += 1
            kinds = ["buf"] * (len(pieces) - 1) + ["end"]
            files = [(f"{name}.{i + 1}.{kind}", p) for i, (p, kind) in enumerate(zip(pieces, kinds, strict=True))]
            rng.shuffle(files)
            for file, piece in files:
                put(root / "in" / file, piece)
        if rng.random() < 0.3:
            source = make(definition, root / "state")
        end = source.latest(at, rng.choice([None, 10]))
        assert source.backlog(at) - source.backlog(end) == total_bytes(source, at, end)
        found += rows(definition, source, at, end)
        if rng.random() < 0.3:
            assert rows(definition, make(definition, root / "state"), at, end) == (
                found[-(end["unit"] - at["unit"]) :] if end != at else []
            )
        at = end
        if rng.random() < 0.7:
            committed = at
            source.commit(committed)
        if at == committed and source.exhausted(at):
            for name in {path.name.split(".")[0] for path in (root / "in").iterdir()}:
                for path in (root / "in").glob(f"{name}.*") if rng.random() < 0.6 else ():
                    path.unlink()
            source._forget_at = 4
            source.commit(at)
    found += rows(definition, source, at, source.latest(at, None))
    assert Counter(found) == Counter(wanted)


def total_bytes(source: Buffers, start: SourceOffset, end: SourceOffset) -> int:
    return sum(f.end - f.begin for s in source.splits(start, end, 2) for u in s.units for f in u.fragments)  # type: ignore[attr-defined]


def test_neither_log_nor_memory_grows_with_what_is_done(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    definition = stream(tmp_path / "in")
    source, at = make(definition, tmp_path / "state"), {"unit": 0}
    for turn in range(1500):
        path = tmp_path / "in" / f"o{turn}.1.end"
        put(path, b"x,y\n")
        at = source.latest(at, None)
        source.commit(at)
        path.unlink()
    assert at == {"unit": 1500}
    for one in (source, make(definition, tmp_path / "state")):
        assert one._log.lines <= 2 * buffers.FORGET_AT
        assert len(one._known) == len(one._buffers) == len(one._origins) == one._log.lines
        assert len(one._units) <= 2 * buffers.FORGET_AT
        assert one.latest(at, None) == at


def test_mistakes_are_refused_when_the_stream_is_declared(tmp_path: Path) -> None:
    with pytest.raises(UnreadableDirectory):
        check_stream(stream(tmp_path / "nowhere"))
    with pytest.raises(BadOption):
        check_stream(stream(tmp_path, header="true"))
