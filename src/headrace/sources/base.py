"""What a source is: offsets on the driver's side, splits read by tasks.

Driver side and task side share nothing but the split, which is pickled. Offsets are JSON-able dicts; an offset that
`latest` returned must stay readable after a restart, so whatever it refers to is durable before it is returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.formats.base import Format

Offset = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RawChunk:
    """Whole records from one origin: `data` starts at byte `offset` of it."""

    origin: str
    offset: int
    data: bytes | memoryview


class Split(Protocol):
    """A picklable piece of an epoch, for one task. Reading it twice gives the same chunks."""

    def read(self, fmt: Format) -> Iterator[RawChunk]:
        """The records that end in this split, in order, in chunks of bounded size."""
        ...


class Source(Protocol):
    """Lives in the process that plans epochs. One caller, one thread.

    unit of parallelism: the split; delivery: replayable from any offset that was not committed.
    """

    def initial(self) -> Offset:
        """The offset before the first record."""
        ...

    def latest(self, start: Offset, max_bytes: int | None) -> Offset:
        """The end of the next epoch: at most about `max_bytes` beyond `start`. Returns an equal offset when there is
        nothing new."""
        ...

    def splits(self, start: Offset, end: Offset, parallelism: int) -> list[Split]:
        """Cut (start, end] into splits, balanced for `parallelism` tasks; few when there is little to do."""
        ...

    def exhausted(self, at: Offset) -> bool:
        """Whether the source is finite, or finite for now (all present files), and nothing lies beyond `at`."""
        ...

    def backlog(self, at: Offset) -> int:
        """About how many bytes lie beyond `at`."""
        ...

    def commit(self, end: Offset) -> None:
        """Everything up to `end` will never be asked for again."""
        ...
