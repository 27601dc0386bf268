"""What tasks count for every pipeline: numbers behind the JSON of their reports.

The driver gets counters for each task and each pipeline, so for the product of both. As JSON, those of 200 tasks with
1,000 pipelines took most of 1.4 s of CPU in the driver. Here the counters of a task are one array, and arrays for the
same instances are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headrace.base.arrays import Ints
from headrace.bridge.messages import decode, encode
from headrace.bridge.reports import TaskReport, TrafficCounts
from headrace.errors import InternalError


class PipelineCounts(NamedTuple):
    """What tasks did for one instance, as whole numbers.

    `late` rows came after all their windows had closed, and `bad` rows have a bad value that the pipeline reads. The
    instance took `us` microseconds in the `timed` tasks: not in those in which it failed, or if it has left the plan.
    The other counters are those of the messages to its lanes, `sent`.
    """

    instance: int
    late: int
    bad: int
    timed: int
    us: int
    batches: int
    rows: int
    watermarks: int
    barriers: int
    ends: int
    dropped: int

    @property
    def sent(self) -> TrafficCounts:
        return self[5:]


def encode_report(report: TaskReport, counts: Sequence[PipelineCounts]) -> bytes:
    """A task's report, and its counters for each instance."""
    return b"%b\0%b" % (encode(report), np.array(counts, np.int64).tobytes())


def decode_report(payload: bytes) -> tuple[TaskReport, Ints]:
    """What `encode_report` was given; the counters as rows of numbers."""
    text, _, numbers = payload.partition(b"\0")
    width = len(PipelineCounts._fields)
    if len(numbers) % (8 * width):
        raise InternalError(f"{len(numbers)} bytes are not counters of a task")
    return decode(TaskReport, text), np.frombuffer(numbers, np.int64).reshape(-1, width)


class CountsSum:
    """The sum of the counters of all tasks."""

    def __init__(self) -> None:
        self._sums: dict[bytes, Ints] = {}  # by the instances that they are for
        self._found: dict[int, PipelineCounts] | None = None

    def add(self, counts: Ints) -> None:
        """Add the counters of one task."""
        instances, self._found = counts[:, 0].tobytes(), None
        held = self._sums.get(instances)
        if held is None:
            self._sums[instances] = counts.copy()
        else:
            held[:, 1:] += counts[:, 1:]

    def by_instance(self) -> Mapping[int, PipelineCounts]:
        """The sums by instance."""
        if self._found is None:
            self._found = {}
            for row in [row for sums in self._sums.values() for row in sums.tolist()]:
                before = self._found.get(row[0])
                if before is not None:  # tasks in which other instances failed have counters for fewer
                    row[1:] = map(sum, zip(before[1:], row[1:], strict=True))
                self._found[row[0]] = PipelineCounts._make(row)
        return self._found
