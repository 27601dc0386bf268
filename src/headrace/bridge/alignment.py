"""The fan-in of Ring 0's tasks into a lane: the lane runs only after every task has delivered the epoch's barrier."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.bridge.messages import LaneEpoch, MessageKind, Row, decode
from headrace.control.barrier import align
from headrace.control.signals import EPOCH, Barrier


def align_tasks(where: str, epochs: dict[int, LaneEpoch], rows: Iterable[Row]) -> Barrier:
    """The barrier that all tasks of the epoch have delivered to a lane.

    `epochs` are the tasks' watermark messages by task, and `rows` all messages of the lane. Raises MissingInput, or
    another error of `headrace.control.barrier`, which names the task.
    """
    # The watermark comes before the barrier. A task without one has not sent everything, so its barrier does not count.
    arrived = [(r.task, decode(Barrier, r.payload)) for r in rows if r.kind == MessageKind.BARRIER and r.task in epochs]
    epoch = max((e.epoch for e in epochs.values()), default=0)
    barrier = arrived[0][1] if arrived else Barrier(EPOCH.name, epoch)
    tasks = max((e.tasks for e in epochs.values()), default=1)
    align(where, "task", count=tasks, arrived=arrived, wanted=barrier)
    return barrier
