"""What a source is: offsets on the driver's side, splits read by tasks.

Driver side and task side share nothing but the split, which is pickled. Offsets are JSON-able dicts; an offset that
`latest` returned must stay readable after a restart, so whatever it refers to is durable before it is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from headrace.base.durable import private_directory
from headrace.base.options import Option, check_options
from headrace.formats.base import BadRecord, Format
from headrace.model.program import StreamDef
from headrace.sources.badfiles import BadRange

Offset = dict[str, Any]
Clock = Callable[[], float]  # seconds since 1970


@dataclass(frozen=True, slots=True)
class RawChunk:
    """Whole records from one origin: `data` starts at byte `offset` of it.

    `bad` are records that the source itself had to refuse (longer than `max_record_bytes`); they are not in `data`.
    `unreadable` is a part of the split that could not be read: nothing of the epoch may be committed before the source
    leaves it out.
    """

    origin: str
    offset: int
    data: bytes | memoryview
    bad: tuple[BadRecord, ...] = ()
    unreadable: BadRange | None = None


class InputSplit(Protocol):
    """A picklable piece of an epoch, for one task. Reading it twice gives the same chunks."""

    def read(self, fmt: Format) -> Iterator[RawChunk]:
        """The records that end in this split, in order, in chunks of bounded size."""
        ...


@runtime_checkable
class LocatesLines(Protocol):
    """A split that can say on which line of its origin a record begins: what a person needs to find it."""

    def line(self, origin: str, offset: int, fmt: Format) -> int | None:
        """The line, from 1, on which byte `offset` of `origin` lies; None when there are no lines. May read the origin
        up to that byte: only for errors."""
        ...


class StreamSource(Protocol):
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

    def splits(self, start: Offset, end: Offset, parallelism: int) -> list[InputSplit]:
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


class SourceFactory(Protocol):
    """Makes a source. `state_dir` is durable and belongs to this stream alone; `values` are the checked options."""

    def __call__(self, stream: StreamDef, values: Mapping[str, Any], state_dir: Path, clock: Clock) -> StreamSource: ...


def check_nothing(stream: StreamDef, values: Mapping[str, Any]) -> None:
    """For sources whose options can only be wrong one by one."""


@dataclass(frozen=True, slots=True)
class SourceKind:
    """A source as users name it in `WITH (source = '...')`. The bytes of a `pushed` one come through the gateway, which
    runs while the stream does. CREATE OR REPLACE STREAM may change the options in `changeable` and keep the stream's
    progress and pipelines: what was read does not depend on them."""

    name: str
    help: str
    options: tuple[Option, ...]
    build: SourceFactory
    verify: Callable[[StreamDef, Mapping[str, Any]], None] = check_nothing
    pushed: bool = False
    changeable: tuple[str, ...] = ()

    def values(self, stream: StreamDef) -> dict[str, Any]:
        """The values of this source's options; the stream's other options belong to its format."""
        own = {o.name for o in self.options}
        mine = {k: v for k, v in stream.options.items() if k.lower() in own}
        return check_options(f"source '{self.name}'", self.options, mine)

    def check(self, stream: StreamDef) -> None:
        """What CREATE STREAM must refuse now rather than when the stream runs: paths that are not there, and so on."""
        self.verify(stream, self.values(stream))

    def make(self, stream: StreamDef, state_dir: Path, clock: Clock) -> StreamSource:
        """The source of `stream`; its log and other durable facts live in `state_dir`, which is made if missing."""
        private_directory(state_dir)
        return self.build(stream, self.values(stream), state_dir, clock)
