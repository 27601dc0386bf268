"""The fan-in of Ring 0's tasks into a lane: the lane goes on only when every task has brought the epoch's barrier."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.bridge.messages import Kind, LaneEpoch, Row, decode_json, encode_json
from headrace.control.barrier import align
from headrace.control.signals import EPOCH, Barrier


def encode_barrier(barrier: Barrier) -> bytes:
    """The payload of a barrier message."""
    return encode_json({"kind": barrier.kind, "id": barrier.id})


def decode_barrier(payload: bytes) -> Barrier:
    """What `encode_barrier` wrote."""
    value = decode_json(payload)
    return Barrier(value["kind"], value["id"])


def align_tasks(where: str, epochs: dict[int, LaneEpoch], rows: Iterable[Row]) -> Barrier:
    """The barrier that all tasks of the epoch have brought to a lane. `epochs` are their watermark messages by task;
    `rows` are the lane's messages. Raises MissingInput, or what else is wrong, naming the task."""
    # A task whose watermark is missing has not said all it must, so its barrier does not count.
    arrived = [(r.task, decode_barrier(r.payload)) for r in rows if r.kind == Kind.BARRIER and r.task in epochs]
    epoch = max((e.epoch for e in epochs.values()), default=0)
    barrier = arrived[0][1] if arrived else Barrier(EPOCH.name, epoch)
    align(where, "task", max((e.tasks for e in epochs.values()), default=1), arrived, barrier)
    return barrier
