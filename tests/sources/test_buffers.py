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
from headrace.program import StreamDef
from headrace.schema import STRING, Field, Schema
from headrace.sources import SOURCES, check_stream
from headrace.sources.base import Offset
from headrace.sources.buffers import Buffers

SCHEMA = Schema((Field("a", STRING), Field("b", STRING)))


def stream(path: Path, **options: str) -> StreamDef:
    return StreamDef("s", SCHEMA, None, 0, "buffers", "csv", {"path": str(path), **options})


def make(definition: StreamDef, state: Path) -> Buffers:
    source = SOURCES["buffers"].make(definition, state, clock=iter(range(10**9)).__next__)
    assert isinstance(source, Buffers)
    return source


def rows(definition: StreamDef, source: Buffers, start: Offset, end: Offset) -> list[tuple[object, ...]]:
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


def test_mistakes_are_refused_when_the_stream_is_declared(tmp_path: Path) -> None:
    with pytest.raises(UnreadableDirectory):
        check_stream(stream(tmp_path / "nowhere"))
    with pytest.raises(BadOption):
        check_stream(stream(tmp_path, header="true"))
