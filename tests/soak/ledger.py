"""What the soaks wrote, sent and asked for, and what must therefore be in the sinks. Plain Python; no part of headrace.

`Presence` is the heart of it: a pipeline sees the rows of a file stream in order, each exactly once, from the epoch in
which it joined to the one in which it left. When exactly that was cannot be known from outside, but between which rows
can: so for every change there is a lower and an upper bound.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.kills import read


class Difference(AssertionError):
    """A sink holds something else than it must."""


@dataclass
class Presence:
    """When a pipeline was part of its stream: `changes` are (on, low, high). The change came into effect before the row
    `high` and not before the row `low`."""

    changes: list[tuple[bool, int, int]] = field(default_factory=list)

    def change(self, on: bool, low: int, high: int) -> None:
        self.changes.append((on, low, high))

    @property
    def on(self) -> bool:
        return bool(self.changes) and self.changes[-1][0]

    def check(self, name: str, ids: Iterable[int], total: int) -> None:
        """`ids` are what its sink holds; the stream had the rows 0 to `total` - 1."""
        once(name, ids, (), range(total))
        found = set(ids)
        bounds = [*self.changes, (False, total, total)]
        before, was_on = 0, False
        for on, low, high in bounds:
            certain = range(before, low)
            wrong = [i for i in certain if (i in found) != was_on]
            if wrong:
                kind = "missing" if was_on else "too many"
                raise Difference(f"{name}: {len(wrong)} rows {kind}, such as {wrong[:5]}; changes {bounds}")
            before, was_on = max(before, high), on
        stretches = sum(1 for i in found if i - 1 not in found)
        allowed = sum(1 for on, _, _ in self.changes if on)
        if stretches > allowed:
            raise Difference(f"{name}: rows in {stretches} stretches, {allowed} expected; changes {bounds}")


def once(name: str, found: Iterable[Any], must: Iterable[Any], may: Iterable[Any]) -> None:
    """Everything in `must` is found exactly once, what else is in `may` at most once, and there is nothing else."""
    counts = Counter(found)
    doubled = [item for item, n in counts.items() if n > 1]
    missing = [item for item in must if item not in counts]
    allowed = may if isinstance(may, range) else set(may)
    strange = [item for item in counts.keys() - set(must) if item not in allowed]
    if doubled or missing or strange:
        raise Difference(
            f"{name}: {counts.total()} rows; {len(doubled)} more than once {doubled[:5]}, "
            f"{len(missing)} missing {missing[:5]}, {len(strange)} from nowhere {strange[:5]}"
        )


def same(name: str, found: Iterable[Any], wanted: Iterable[Any]) -> None:
    """Equal as multisets."""
    ours, theirs = Counter(found), Counter(wanted)
    if ours != theirs:
        raise Difference(
            f"{name}: {ours.total()} rows, wanted {theirs.total()}; too many {list((ours - theirs).items())[:5]}, "
            f"missing {list((theirs - ours).items())[:5]}"
        )


class Visible:
    """The column `id` of a sink of JSON lines, as a reader sees it while it grows. Files that were read are not read
    again: what is visible never changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: set[str] = set()
        self.ids: set[int] = set()

    def look(self) -> set[int]:
        for part in self.path.glob("part-*") if self.path.exists() else ():
            if part.name not in self._read:
                self.ids.update(json.loads(line)["id"] for line in part.read_text().splitlines())
                self._read.add(part.name)
        return self.ids


def column(path: Path, *names: str) -> list[Any]:
    """What a reader of a file sink sees: values for one column, tuples for several."""
    rows = read(path, names) if path.exists() and any(path.glob("part-*")) else []
    return [row[0] for row in rows] if len(names) == 1 else list(rows)
