"""The compiled loops of the hashes return what the NumPy versions return, which are compared with Spark."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from headrace.exec.kernels import KERNELS, hashes


@pytest.mark.parametrize(("name", "seed"), [("hr_murmur_text", 42), ("hr_xxh_bytes", 42), ("hr_murmur_bytes", -7)])
def test_long_columns_have_the_hashes_of_short_ones(monkeypatch: pytest.MonkeyPatch, name: str, seed: int) -> None:
    chosen = random.Random(5)
    rows = [None if i % 17 == 0 else "é日😀xyz"[i % 6 :] * (i % 40) for i in range(400)]
    chosen.shuffle(rows)
    texts = pa.array(rows, pa.string())
    column = texts if name.endswith("text") else texts.cast(pa.binary())
    kernel = KERNELS[name]
    seeds = pa.array([seed] * len(rows), pa.int32() if "murmur" in name else pa.int64())
    compiled = kernel.function(column, seeds)
    monkeypatch.setattr(hashes, "FEWEST_ROWS", 10**9)
    assert compiled.equals(kernel.function(column, seeds))
    part = column.slice(100, 300)
    monkeypatch.undo()
    assert kernel.function(part, seeds.slice(100, 300)).equals(compiled.slice(100, 300))
