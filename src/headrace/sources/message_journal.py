"""Reads the journal of a stream of messages, which the gateway got from a broker. A message is a record by its own
boundary, and the journal keeps its topic and the time of its arrival (`headrace.ingress.frames`).

Unit of parallelism: a block of the journal. Delivery: exactly once into an epoch, from the journal on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.formats.format_kind import Format
from headrace.formats.packing import EMPTY_MESSAGE, MessageFormat
from headrace.formats.text import TextRecords
from headrace.ingress.frames import Messages, parse_frames
from headrace.ingress.ready import Stretch, UnitReader
from headrace.model.schema import BOOLEAN, INT, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType
from headrace.sources.journal_reader import JournalSource
from headrace.sources.reading import CHUNK
from headrace.sources.source_kind import Fact, InputSplit, RawChunk, SourceOffset

FactTypes = tuple[DataType, ...]
_TIMES = (TIMESTAMP, TIMESTAMP_NTZ)
SUBJECT_FACTS: Mapping[str, FactTypes] = {"subject": (STRING,), "arrival": _TIMES}
MQTT_FACTS: Mapping[str, FactTypes] = {"topic": (STRING,), "arrival": _TIMES, "qos": (INT,), "retained": (BOOLEAN,)}


@dataclass(frozen=True, slots=True)
class JournalFacts:
    """Metadata columns of some messages. Places are their numbers."""

    messages: Messages

    def column(self, key: str, kind: DataType, places: npt.NDArray[np.int64]) -> Fact:
        rows, found = places.tolist(), self.messages
        if key == "arrival":
            return Fact(pa.array([found.arrivals[i] for i in rows], pa.int64()).view(kind.arrow))
        if key in ("topic", "subject"):
            texts = [_text(found.topics[i]) for i in rows]
            return Fact(pa.array(texts, pa.string()), np.array([t is None for t in texts], bool))
        flag = 0 if key == "qos" else 1
        return Fact(pa.array([found.flags[i][flag] for i in rows], kind.arrow))


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True, slots=True)
class MessageSplit:
    """The messages of some stretches of a ready log."""

    directory: str
    origin: str
    stretches: tuple[Stretch, ...]

    def read(self, fmt: Format) -> Iterator[RawChunk]:
        assert isinstance(fmt, MessageFormat), "CREATE STREAM rejects other formats"
        reader = UnitReader(Path(self.directory))
        for stretch in self.stretches:
            for run in reader.runs(stretch, CHUNK):
                yield chunk_of(self.origin, parse_frames(run.data, run.address), fmt)


def chunk_of(origin: str, found: Messages, fmt: MessageFormat) -> RawChunk:
    """The records of messages. An empty one is a record only of text."""
    left_out: dict[str, int] = {}
    if not all(found.values) and not isinstance(fmt, TextRecords):
        kept = [i for i, value in enumerate(found.values) if value]
        left_out = {EMPTY_MESSAGE: len(found.values) - len(kept)}
        found = Messages(*([column[i] for i in kept] for column in _columns(found)))
    if not found.values:
        return RawChunk(origin, 0, b"", left_out=left_out)
    packed = fmt.pack(found.values, lambda: np.array(found.places, np.int64))
    return RawChunk(origin, 0, packed.data, left_out=left_out, packed=packed, facts=JournalFacts(found))


def _columns(found: Messages) -> tuple[list[Any], ...]:
    return found.places, found.topics, found.values, found.arrivals, found.flags


class MessageJournal(JournalSource):
    """Plans the epochs of a stream of messages."""

    def splits(self, start: SourceOffset, end: SourceOffset, parallelism: int) -> list[InputSplit]:
        return [MessageSplit(str(self.directory), self.origin, g) for g in self.groups(start, end, parallelism)]
