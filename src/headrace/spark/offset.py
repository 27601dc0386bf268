"""The offset of a stream: where an epoch ends, and everything that a re-run of the epoch must repeat.

Spark logs the offset as JSON before the epoch runs, and hands dictionaries in and out. `Offset` is the typed form
inside the planner. `stored` returns the dictionary with the same keys and values, because committed epochs are
recognised by a digest of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.control.signals import Barrier


@dataclass(frozen=True, slots=True)
class Offset:
    """`source` is the source's own offset. `barrier_id` and `barrier_kind` name the newest barrier that an epoch has
    carried, 0 and "" before the first. `now` is the clock in microseconds when the epoch was planned. `epoch` is the
    number of the epoch that ends here, -1 before the first."""

    source: dict[str, Any]
    plan: int = 0
    barrier_id: int = 0
    barrier_kind: str = ""
    watermark: int | None = None
    now: int = 0
    epoch: int = -1

    @staticmethod
    def parse(value: dict[str, Any]) -> Offset:
        barrier_id, barrier_kind = value["barrier"]
        return Offset(
            source=value["source"],
            plan=value["plan"],
            barrier_id=barrier_id,
            barrier_kind=barrier_kind,
            watermark=value["watermark"],
            now=value["now"],
            epoch=value["epoch"],
        )

    def stored(self) -> dict[str, Any]:
        """The offset as Spark logs it."""
        return {
            "source": self.source,
            "plan": self.plan,
            "barrier": [self.barrier_id, self.barrier_kind],
            "watermark": self.watermark,
            "now": self.now,
            "epoch": self.epoch,
        }

    def barrier_since(self, start: Offset) -> Barrier | None:
        """The barrier that the epoch from `start` to here carries, if it carries one."""
        if (self.barrier_id, self.barrier_kind) == (start.barrier_id, start.barrier_kind):
            return None
        return Barrier(self.barrier_kind, self.barrier_id)
