"""Decoding a file of any size needs at most 64 MB per task above the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.formats import FORMATS
from headrace.ring0 import pieces
from headrace.sources.source_kind import RawChunk
from tests.formats.memory import CASES, SCHEMA

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


@pytest.mark.parametrize("case", ["json", "multiline", "tiny", "bad"])
def test_pieces_of_a_chunk_hold_the_same_records(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "BUDGET", 100_000)
    name, options, record = CASES[case]
    fmt = FORMATS[name].make(SCHEMA, {k: v for k, v in options.items() if k != "codec"})
    long = record if case == "bad" else record[:-1] + b" " * 30_000 + b"\n"
    data = record * 8000 + long + record * 8000
    cut = list(pieces.pieces(fmt, RawChunk("o", 7, data), len(SCHEMA)))
    assert len(cut) > 5
    assert b"".join(bytes(piece.data) for piece in cut) == data
    assert [piece.offset for piece in cut] == [7 + sum(len(p.data) for p in cut[:k]) for k in range(len(cut))]
    wholes = [fmt.index(piece.data, (), "o", 0) for piece in cut]
    whole = fmt.index(data, (), "o", 0)
    assert sum(w.rows for w in wholes) == whole.rows
    assert sum(len(w.bad) for w in wholes) == len(whole.bad)
