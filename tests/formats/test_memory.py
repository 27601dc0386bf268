"""Decoding a file of any size needs at most 64 MB per task above the interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats import FORMATS
from headrace.formats.index import view_of
from headrace.formats.kernels.scan_json import count_items
from headrace.ring0 import pieces
from headrace.ring0.record_cells import RecordCells
from headrace.sources.source_kind import RawChunk
from tests.formats.memory import CASES, SCHEMA, SCHEMAS

MOST = 64.0


@pytest.mark.slow
def test_a_task_stays_below_64_mb_whatever_the_records_are(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "tests.formats.memory", str(tmp_path)], cwd=Path(__file__).parents[2],
        capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    found = {case: float(figure) for case, figure in (line.rsplit(": ", 1) for line in answer.stdout.splitlines())}
    assert found.keys() == CASES.keys()
    assert {case: mb for case, mb in found.items() if mb > MOST} == {}


@pytest.mark.parametrize("case", ["json", "multiline", "tiny", "bad", "items", "bad items", "members"])
def test_pieces_of_a_chunk_hold_the_same_records(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "BUDGET", 100_000)
    name, options, record = CASES[case]
    schema = SCHEMAS.get(case, SCHEMA)
    cells = RecordCells.of(field.type for field in schema)
    fmt = FORMATS[name].make(schema, {k: v for k, v in options.items() if k != "codec"})
    long = record if case == "bad" else record[:-1] + b" " * 30_000 + b"\n"
    count = 20 if case in SCHEMAS else 8000
    data = record * count + long + record * count
    cut = list(pieces.pieces(fmt, RawChunk("o", 7, data), cells))
    assert len(cut) > 5
    assert b"".join(bytes(piece.data) for piece in cut) == data
    assert [piece.offset for piece in cut] == [7 + sum(len(p.data) for p in cut[:k]) for k in range(len(cut))]
    wholes = [fmt.index(piece.data, (), "o", 0) for piece in cut]
    whole = fmt.index(data, (), "o", 0)
    assert sum(w.rows for w in wholes) == whole.rows
    assert sum(len(w.bad) for w in wholes) == len(whole.bad)


VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=6) | st.sampled_from(['"', "\\", "[", "]", "{", "}", ",", "],["]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=30,
)


def nested(value: object) -> tuple[int, int, int]:
    """The items of all arrays in a value, the members of all objects, and how many arrays and objects there are."""
    if not isinstance(value, list | dict):
        return 0, 0, 0
    inside = [nested(part) for part in (value.values() if isinstance(value, dict) else value)]
    items, members, values = (sum(counts) for counts in zip(*inside, strict=True)) if inside else (0, 0, 0)
    own = len(value)
    return (items, members + own, values + 1) if isinstance(value, dict) else (items + own, members, values + 1)


@given(st.lists(VALUES, max_size=5), st.booleans())
def test_items_of_arrays_are_counted_whatever_is_between_them(lines: list[object], dense: bool) -> None:
    text = "\n".join(json.dumps(line, separators=(",", ":") if dense else (" , ", " : ")) for line in lines)
    items, members, values = (sum(counts) for counts in zip((0, 0, 0), *map(nested, lines), strict=True))
    data = view_of(text.encode())
    assert items <= count_items(data, False) <= items + values
    assert items + members <= count_items(data, True) <= items + members + values
