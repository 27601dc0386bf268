"""The source `pipeline`: the output of a pipeline as a stream again. Its rows come from a feed
(`headrace.sinks.feed_log`) that the pipeline writes, one epoch of the pipeline at a position.

Only CREATE STREAM ... AS PIPELINE and INTO STREAM of a pipeline make such a stream. The feed is in the directory of the
stream, so that the stream takes it along when it is dropped or copied.

**Event time.** Every position of the feed says how far the event time of the stream has come: `FeedEpoch.watermark`,
which the pipeline's own stream decides. The splits of an epoch carry that of its last position, and the rows do not
count. So windows close even if the pipeline lets no row through, and a pipeline that closes its windows early (at the
end of its input) does not make its later rows late. A stream whose event time is not inherited follows its rows.

Unit of parallelism: a segment of the feed, which is what one task of the pipeline wrote. Delivery: exactly once into an
epoch; a range of positions can be read again until it is committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.base.options import choice, option, size, text
from headrace.formats.arrow_files import StreamBatch
from headrace.formats.format_kind import Format
from headrace.formats.tables import TableFormat, UnitRows
from headrace.model.definitions import DERIVED, StreamDef
from headrace.sinks.feed_log import FeedEpoch, FeedLog, FeedSegment, read_segments, stream_feed
from headrace.sources.source_kind import InputSplit, RawChunk, SourceKind, SourceOffset, WallClock

CONSUMER = "stream"
NO_ROOM = "no_room"  # the reason of rows for which there was no room (backpressure 'drop')


@dataclass(frozen=True, slots=True)
class DerivedSettings:
    """The options of a stream that a pipeline feeds. The hub sets the first two."""

    pipeline: str = option(text, required=True, help="the pipeline whose output the stream is")
    event_time: Literal["inherited", "rows"] = option(
        choice("inherited", "rows"), default="rows", help="what moves the watermark: the pipeline's stream, or the rows"
    )
    backpressure: Literal["spill", "pause", "drop"] = option(
        choice("spill", "pause", "drop"),
        default="spill",
        help="what happens when rows that wait for this stream exceed max_backlog: 'spill' (4 GB by default) and "
        "'pause' (64 MB) pause the stream that the pipeline reads, 'drop' (64 MB) drops and counts rows",
    )
    max_backlog: int | None = option(size, help="how many bytes of rows may wait for this stream")


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """A segment, the position of its epoch, and its number there."""

    position: int
    number: int
    segment: FeedSegment


@dataclass(frozen=True, slots=True)
class FeedSplit:
    """Segments of a feed. `event_time` is how far the stream has come at the end of the epoch; if `timed` is false, the
    rows decide. For `dropped` rows of the epoch the feed had no room."""

    stream: str
    directory: str
    places: tuple[SegmentPlace, ...]
    timed: bool
    event_time: int | None
    dropped: int = 0

    def read(self, fmt: Format) -> Iterator[RawChunk]:
        assert isinstance(fmt, TableFormat), "a feed holds columns"
        directory = Path(self.directory)
        if self.dropped:
            yield RawChunk(self.stream, 0, b"", left_out={NO_ROOM: self.dropped})
        for place in self.places:
            origin, first = f"{self.stream}/{place.position:012}-{place.number:04}", 0
            path = str(directory / place.segment.file)
            for batch in read_segments(directory, [place.segment]):
                unit = StreamBatch(batch, path, first, batch.nbytes)
                yield RawChunk(
                    origin, first, b"", table=UnitRows(unit, fmt.schema, path=path, begin=0, end=batch.num_rows)
                )
                first += batch.num_rows


class DerivedSource:
    """Plans the epochs of a stream that a pipeline feeds. An offset is the position after the last epoch of the
    feed."""

    def __init__(self, stream: StreamDef, settings: DerivedSettings, state_dir: Path, clock: WallClock) -> None:
        self._stream, self._timed = stream.name, settings.event_time == "inherited"
        self._log = FeedLog(stream_feed(state_dir.parent))

    def initial(self) -> SourceOffset:
        return {"position": self._log.register(CONSUMER)}

    def latest(self, start: SourceOffset, max_bytes: int | None) -> SourceOffset:
        at, end, taken = int(start["position"]), self._log.end(), 0
        while at < end:
            size = self._log.epoch(at).bytes
            if max_bytes is not None and taken and taken + size > max_bytes:
                break
            at, taken = at + 1, taken + size
        return {"position": at}

    def splits(self, start: SourceOffset, end: SourceOffset, parallelism: int) -> list[InputSplit]:
        epochs = self._log.epochs(int(start["position"]), int(end["position"]))
        if not epochs:
            return []
        groups: list[list[SegmentPlace]] = [[] for _ in range(max(1, parallelism))]
        sizes = [0] * len(groups)
        for place in _places(epochs):
            smallest = sizes.index(min(sizes))
            groups[smallest].append(place)
            sizes[smallest] += place.segment.bytes
        reached = epochs[-1].watermark if self._timed else None
        used = [g for g in groups if g] or [[]]
        directory = str(self._log.segments)
        lost = [sum(epoch.dropped for epoch in epochs), *(0 for _ in used[1:])]  # counted once
        return [
            FeedSplit(
                self._stream, directory, places=tuple(group), timed=self._timed, event_time=reached, dropped=dropped
            )
            for group, dropped in zip(used, lost, strict=True)
        ]

    def exhausted(self, at: SourceOffset) -> bool:
        return int(at["position"]) >= self._log.end()

    def backlog(self, at: SourceOffset) -> int:
        return self._log.backlog(int(at["position"])).bytes

    def commit(self, end: SourceOffset) -> None:
        self._log.register(CONSUMER)
        self._log.advance(CONSUMER, int(end["position"]))


def _places(epochs: list[FeedEpoch]) -> Iterator[SegmentPlace]:
    for epoch in epochs:
        for number, segment in enumerate(epoch.segments):
            yield SegmentPlace(epoch.position, number, segment)


PIPELINE = SourceKind(
    name=DERIVED,
    help="the output of a pipeline (CREATE STREAM ... AS PIPELINE)",
    settings=DerivedSettings,
    build=DerivedSource,
    changeable=("backpressure", "max_backlog"),
)
