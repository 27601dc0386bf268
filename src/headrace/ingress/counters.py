"""What an ingress counts, for each class of origins; kept in the journal, so that a restart goes on counting."""

from __future__ import annotations

import numpy as np

from headrace.ingress.shredder import Ints

CLASSES = ("tcp", "tcp_client", "http")
# opened, closed: connections; buffers, bytes: journaled; requests: answered with 2xx; refused: requests answered with
# 4xx or 5xx, and connections over the limit; dropped_*: given up under backpressure; cut_*: open records of
# connections that ended; long: records cut because they were too long; timeouts: connections closed for being idle or
# too slow; errors: connections that broke, and connects that failed.
NAMES = (
    "opened", "closed", "buffers", "bytes", "requests", "refused", "dropped_records", "dropped_bytes", "cut_records",
    "cut_bytes", "long", "timeouts", "errors",
)  # fmt: skip


class Counters:
    """Counters of all classes: a dict each, because single additions are what happens most."""

    def __init__(self, values: Ints | None = None) -> None:
        flat = values.tolist() if values is not None and len(values) == len(CLASSES) * len(NAMES) else None
        self._rows: dict[str, dict[str, int]] = {}
        for i, kind in enumerate(CLASSES):
            row = flat[i * len(NAMES) : (i + 1) * len(NAMES)] if flat else [0] * len(NAMES)
            self._rows[kind] = dict(zip(NAMES, row, strict=True))
            # A process that was killed has closed nothing, but nothing of it is open any more.
            self._rows[kind]["closed"] = self._rows[kind]["opened"]

    def of(self, kind: str) -> dict[str, int]:
        """The counters of a class, to be added to in place."""
        return self._rows[kind]

    def total(self, name: str) -> int:
        return sum(row[name] for row in self._rows.values())

    def to_array(self) -> Ints:
        return np.array([value for row in self._rows.values() for value in row.values()], np.int64)

    def used(self) -> dict[str, dict[str, int]]:
        """The classes that were ever used, with the connections that are open now."""
        return {
            kind: {"open": row["opened"] - row["closed"], **row}
            for kind, row in self._rows.items()
            if any(row.values())
        }
