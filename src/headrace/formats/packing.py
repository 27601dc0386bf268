"""Messages as records: a message of a broker is one record by its own boundary, whatever bytes it has.

A source packs the messages of one partition into one buffer, and a format indexes the buffer as it indexes any other.
So there is no work per message beside the copy of its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from headrace.formats.bad import BadRecords
from headrace.formats.kernels.scan_json import count_lines

# Why a message is no record. They are counted beside the reasons of bad records. docs/sources.md explains them.
TOMBSTONE, EMPTY_MESSAGE, NO_RECORD, LOST = "tombstone", "empty_message", "no_record", "data_lost"

Int32s = npt.NDArray[np.int32]
OffsetsOf = Callable[[], npt.NDArray[np.int64]]  # the offsets of messages, computed when they are needed


@dataclass(frozen=True, slots=True)
class Packed:
    """The values of messages in one buffer: message k is bytes [begins[k], stops[k]) of `data`.

    `plain` is false if some value contains the bytes that separate the messages of other buffers. `raw` is the buffer
    that errors and dead letters show; it has the same positions. `number` returns the offsets of the messages in their
    partition. `first` is the number of the first message, if this is a part of a larger buffer.
    """

    data: bytes
    begins: Int32s
    stops: Int32s
    number: OffsetsOf
    plain: bool = True
    raw: npt.NDArray[np.uint8] | None = None
    first: int = 0

    def __len__(self) -> int:
        return len(self.begins)

    def message_of(self, places: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """The messages that contain these bytes of the buffer."""
        return np.searchsorted(self.begins, places, side="right") - 1

    def cut(self, size: int) -> Iterator[Packed]:
        """The same messages, in order, in buffers of about `size` bytes."""
        first = 0
        while first < len(self):
            last = max(first + 1, int(np.searchsorted(self.stops, self.begins[first] + size, side="right")))
            yield self._part(first, min(last, len(self)))
            first = last

    def _part(self, first: int, last: int) -> Packed:
        begin, end = int(self.begins[first]), int(self.stops[last - 1])
        return replace(
            self,
            data=self.data[begin:end],
            raw=None if self.raw is None else self.raw[begin:end],
            begins=self.begins[first:last] - np.int32(begin),
            stops=self.stops[first:last] - np.int32(begin),
            number=lambda: self.number()[first:last],
            first=self.first + first,
        )

    def locate(self, bad: BadRecords) -> BadRecords:
        """`bad`, found in this buffer, with the offsets of the messages instead of bytes."""
        if not len(bad.rows):
            return bad
        data = bad.data if self.raw is None else self.raw
        return replace(bad, data=data, numbers=(self.begins, self.number()))


@runtime_checkable
class MessageFormat(Protocol):
    """A format that can take each message as one record."""

    def pack(self, values: Sequence[bytes], number: OffsetsOf) -> Packed:
        """Put the values of messages into one buffer. There is at least one."""
        ...

    def index_packed(self, packed: Packed, wanted: Sequence[int], origin: str) -> Any:
        """Like `headrace.formats.format_kind.Format.index`. Rows have the positions of their messages."""
        ...


def pack_joined(values: Sequence[bytes], joint: bytes, number: OffsetsOf) -> Packed:
    """Pack values with `joint` between them."""
    data = joint.join(values)
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    stops = np.cumsum(sizes + len(joint)) - len(joint)
    begins = (stops - sizes).astype(np.int32)
    plain = not joint or _count(data, joint) == len(values) - 1
    return Packed(data=data, begins=begins, stops=stops.astype(np.int32), number=number, plain=plain)


def _count(data: bytes, joint: bytes) -> int:
    """How often `joint` is in `data`. For one byte the kernel takes a seventh of the time of `bytes.count`."""
    return count_lines(np.frombuffer(data, np.uint8), joint[0]) - 1 if len(joint) == 1 else data.count(joint)
