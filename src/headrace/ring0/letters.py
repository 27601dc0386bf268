"""Dead letters: the rejected records of one task, staged in the stream's dead letter sink like any other output.

A record belongs to one task. The task writes one letter per (record, column, reason), however many pipelines reject it.
Letters are committed with the epoch, so they have the delivery guarantee of their sink.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from headrace.errors import SinkFailed, SinkUnavailable
from headrace.formats.format_kind import BadRecord
from headrace.model.definitions import DEAD_LETTER, SinkDef, StreamDef
from headrace.model.schema import field_at
from headrace.sinks import SINKS
from headrace.sinks.sink_kind import SinkKey, Staged

# Letters are staged in pieces of about this many bytes. That bounds a task's memory when every record is bad.
STAGE_BYTES = 8 * 1024 * 1024
_OVERHEAD = 256  # bytes of a letter besides the record


class DeadLetters:
    """Collects letters and stages them in `sink`. A failure concerns the whole stream, because the epoch must not be
    committed without them."""

    def __init__(self, stream: StreamDef, sink: SinkDef, key: SinkKey) -> None:
        self._stream, self._sink, self._key = stream, sink, key
        self._waiting: list[BadRecord] = []
        self._bytes = 0
        self._staged: list[Staged] = []

    def add(self, records: Iterable[BadRecord]) -> None:
        """Add rejected records."""
        for record in records:
            self._waiting.append(record)
            self._bytes += len(record.raw) + _OVERHEAD
            if self._bytes >= STAGE_BYTES:
                self._stage()

    def finish(self) -> list[tuple[str, Staged]]:
        """Stage the remaining letters. Returns all receipts, with the name of the sink."""
        if self._waiting:
            self._stage()
        return [(self._sink.name, receipt) for receipt in self._staged]

    def _stage(self) -> None:
        letters, self._waiting, self._bytes = self._waiting, [], 0
        schema = self._stream.schema
        columns: list[list[Any]] = [
            [self._stream.name] * len(letters),
            [b.origin for b in letters],
            [b.offset for b in letters],
            [None if b.column is None else field_at(schema, b.column).name for b in letters],
            [b.reason for b in letters],
            [b.raw for b in letters],
            [b.raw.decode("utf-8", "replace") for b in letters],
        ]
        table = pa.table(dict(zip(DEAD_LETTER.names, columns, strict=True)), schema=DEAD_LETTER.arrow)
        try:
            kind = SINKS[self._sink.kind]
            fresh = kind.task(self._sink).stage(table, self._key)
            self._staged = kind.condense(self._sink, [*self._staged, fresh])
        except SinkFailed as problem:
            raise for_stream(problem) from problem


def for_stream(problem: SinkFailed) -> SinkFailed:
    """The error with advice for a dead letter sink. Its stream waits, because dead letters cannot be skipped."""
    waits = isinstance(problem, SinkUnavailable)
    next_step = "The stream then continues by itself." if waits else "Then start a pipeline of the stream again."
    problem.advice = f"The stream writes dead letters to this sink. Free space for them. {next_step} Nothing is lost."
    return problem
