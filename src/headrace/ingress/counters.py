"""The counters of an ingress, per class of origins. The journal stores them, so they survive a restart."""

from __future__ import annotations

import numpy as np

from headrace.base.arrays import Ints

CLASSES = ("tcp", "tcp_client", "http", "mqtt", "nats_core")  # new ones at the end: journals store them in this order
# opened, closed: connections. buffers, bytes: journaled. requests: answered with 2xx. refused: requests answered with
# 4xx or 5xx, and connections over the limit. dropped_*: dropped under backpressure. cut_*: unfinished records of
# connections that ended. long: records that were cut because they were too long. timeouts: connections that were closed
# because they were idle or too slow. errors: broken connections and failed connects.
NAMES = (
    "opened", "closed", "buffers", "bytes", "requests", "refused", "dropped_records", "dropped_bytes", "cut_records",
    "cut_bytes", "long", "timeouts", "errors",
)  # fmt: skip


class Counters:
    """The counters of all classes. A dict each, because most operations add to one counter."""

    def __init__(self, values: Ints | None = None) -> None:
        flat = values.tolist() if values is not None and len(values) % len(NAMES) == 0 else []
        flat += [0] * (len(CLASSES) * len(NAMES) - len(flat))  # the journal of an earlier version had fewer classes
        self._rows: dict[str, dict[str, int]] = {}
        for i, kind in enumerate(CLASSES):
            row = flat[i * len(NAMES) : (i + 1) * len(NAMES)]
            self._rows[kind] = dict(zip(NAMES, row, strict=True))
            # A killed process counted no closes, but all its connections are closed by now.
            self._rows[kind]["closed"] = self._rows[kind]["opened"]

    def of(self, kind: str) -> dict[str, int]:
        """The counters of a class. The caller adds to them in place."""
        return self._rows[kind]

    def total(self, name: str) -> int:
        return sum(row[name] for row in self._rows.values())

    def to_array(self) -> Ints:
        return np.array([value for row in self._rows.values() for value in row.values()], np.int64)

    def used(self) -> dict[str, dict[str, int]]:
        """The classes that were ever used, with the number of open connections."""
        return {
            kind: {"open": row["opened"] - row["closed"], **row}
            for kind, row in self._rows.items()
            if any(row.values())
        }
