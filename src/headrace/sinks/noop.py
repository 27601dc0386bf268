"""The noop sink: counts the rows of an epoch and writes nothing. It measures a pipeline without the cost of a sink.

Unit of commit: the epoch. Guarantee: none; rows are counted and dropped.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.model.definitions import SinkDef
from headrace.model.schema import Schema
from headrace.sinks.in_process import InProcessSink
from headrace.sinks.sink_kind import SinkKey, SinkKind, SinkSettings, Staged

_GUARANTEE = "none: rows are counted and dropped"


class NoopTask:
    """Counts rows. They never leave the task."""

    def stage(self, table: pa.Table, key: SinkKey) -> Staged:
        return Staged(table.num_rows)


def _merge_receipts(settings: SinkSettings, staged: list[Staged]) -> list[Staged]:
    return [Staged(sum(receipt.rows for receipt in staged))]


class NoopSink(InProcessSink):
    """Returns the number of rows of each epoch, so that the pipeline's counters are right."""

    guarantee = _GUARANTEE

    def commit(self, key: SinkKey, staged: list[Staged]) -> int:
        repeated = self._seen.repeated(key)
        return self._seen.add(key, staged) if repeated is None else repeated

    def close(self) -> None:
        """Nothing is open."""


def _task(sink: SinkDef, settings: SinkSettings) -> NoopTask:
    return NoopTask()


def _driver(sink: SinkDef, settings: SinkSettings, output: Schema) -> NoopSink:
    return NoopSink()


NOOP = SinkKind(
    name="noop",
    help="counts rows and writes nothing, for measuring",
    guarantee=_GUARANTEE,
    settings=SinkSettings,
    make_task=_task,
    make_driver=_driver,
    merge_receipts=_merge_receipts,
)
