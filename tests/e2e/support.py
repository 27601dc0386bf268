"""What the end-to-end tests share: waiting for facts, files of records, and comparing rows as multisets."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

T = TypeVar("T")
Row = tuple[Any, ...]

# Sums of doubles depend on the order of addition; everything else must be equal.
RELATIVE_BOUND = 1e-9
PATIENCE = 90.0


def until(fact: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """Wait for the first true result of `fact` and return it. Fails the test after a timeout."""
    deadline = time.monotonic() + seconds
    while not (answer := fact()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)
    return answer


def put(path: Path, lines: Iterable[str], *, newline_at_end: bool = True) -> Path:
    """Write a file that appears complete: under another name first, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.parent / f".{path.name}.part"
    text = "\n".join(lines)
    aside.write_text(text + "\n" if newline_at_end and text else text, encoding="utf-8")
    os.rename(aside, path)
    return path


def rows_of(table: pa.Table) -> list[Row]:
    """The rows as tuples of Python values."""
    return [tuple(row.values()) for row in table.to_pylist()]


def last_per_group(rows: Sequence[Row], keys: int) -> list[Row]:
    """For output on change: the newest row of each group; the first `keys` columns are the group."""
    return list({row[:keys]: row for row in rows}.values())


def assert_same_rows(found: Sequence[Row], wanted: Sequence[Row], what: str) -> None:
    """Equal as multisets; doubles within RELATIVE_BOUND, every other type exactly."""
    extra, missing = Counter(map(_exact, found)), Counter(map(_exact, wanted))
    assert extra == missing, (
        f"{what}: {len(found)} rows, wanted {len(wanted)}; "
        f"too many: {list((extra - missing).items())[:5]}, missing: {list((missing - extra).items())[:5]}"
    )
    for ours, theirs in zip(sorted(found, key=_order), sorted(wanted, key=_order), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            if isinstance(a, float) and isinstance(b, float):
                assert math.isclose(a, b, rel_tol=RELATIVE_BOUND), f"{what}: {ours} != {theirs}"


def _exact(row: Row) -> Row:
    """The row without its doubles: the values that must be equal exactly."""
    return tuple("double" if isinstance(v, float) else v for v in row)


def _order(row: Row) -> tuple[str, list[float]]:
    return repr(_exact(row)), [v for v in row if isinstance(v, float)]
