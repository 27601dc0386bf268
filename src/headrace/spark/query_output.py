"""Stages the result of a pipeline's Spark query in its sinks.

The rows of a small epoch come to the driver, which stages them: a job and a Python worker would take longer than the
query. If the input was large, the tasks of the query stage its rows, and only receipts come to the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from headrace.bridge.messages import Receipt, decode, encode
from headrace.bridge.reports import Failure
from headrace.errors import HeadraceError, OutputChanged, SinkFailed
from headrace.exec.failures import failure_text, waited_for
from headrace.model.definitions import PipelineDef
from headrace.model.schema import Schema
from headrace.sinks import SINKS
from headrace.sinks.delivery import stage
from headrace.sinks.sink_kind import SinkKey, Staged
from headrace.spark.jvm_plans import as_output, fetch

Receipts = dict[str, list[Staged]]
_RECEIPT, _FAILURE = 0, 1
_FIELDS: list[pa.Field[Any]] = [pa.field("kind", pa.int32()), pa.field("payload", pa.binary())]
_MESSAGES = pa.schema(_FIELDS)
_RETURNED = StructType([StructField("kind", IntegerType()), StructField("payload", BinaryType())])


def write_output(
    result: DataFrame, pipeline: PipelineDef, key: SinkKey, lost: dict[str, str], in_tasks: bool
) -> Receipts:
    """Run the query and stage its rows. Returns what each sink has staged, and adds sinks that could not be written to
    to `lost`. Raises OutputChanged when the result no longer has the pipeline's columns."""
    output = pipeline.program.output
    _require_types(result, pipeline)
    if in_tasks:
        return _staged_by_tasks(result, pipeline, key, lost)
    table = fetch(result, output)
    return _merged(pipeline, stage(pipeline.sinks, table, key, lost)) if table.num_rows else {}


def _require_types(result: DataFrame, pipeline: PipelineDef) -> None:
    """A static table that changed its schema may change the types of the result. Files of one sink must not differ."""
    wanted = [f.type.ddl.lower().replace(" ", "") for f in pipeline.program.output]
    found = [f.dataType.simpleString().replace(" ", "") for f in result.schema.fields]
    if [_plain(t) for t in found] != [_plain(t) for t in wanted]:
        raise OutputChanged(
            f"the query of pipeline {pipeline.name} now returns ({', '.join(found)}) instead of ({', '.join(wanted)})",
            advice="A static table has changed its schema. Cast the column in the query, or create the pipeline again.",
            pipeline=pipeline.name,
        )


def _plain(ddl: str) -> str:
    return ddl.lower().replace("`", "")


def _staged_by_tasks(result: DataFrame, pipeline: PipelineDef, key: SinkKey, lost: dict[str, str]) -> Receipts:
    found: list[tuple[str, Staged]] = []
    rows = result.mapInArrow(_stager(pipeline, key), _RETURNED).collect()
    for kind, payload in rows:
        if kind == _FAILURE:
            failure = decode(Failure, bytes(payload))
            if failure.sink is None:
                raise waited_for(failure.reason) or SinkFailed(failure.reason)
            lost.setdefault(str(failure.sink), failure.reason)
        else:
            receipt = Receipt.decode(bytes(payload))
            found.append((receipt.sink, receipt.staged))
    return _merged(pipeline, [(sink, staged) for sink, staged in found if sink not in lost])


def _stager(pipeline: PipelineDef, key: SinkKey) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The work of a task: stage its rows in every sink, and send receipts."""
    output: Schema = pipeline.program.output

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lost: dict[str, str] = {}
        for piece in _pieces(batches):
            table = as_output(piece, output)
            try:
                receipts = stage(pipeline.sinks, table, key, lost)
            except HeadraceError as problem:  # as a message: an exception would reach the driver without its code
                yield _message(_FAILURE, encode(Failure(pipeline.instance, failure_text(problem))))
                return
            for sink, staged in receipts:
                yield _message(_RECEIPT, Receipt(pipeline.instance, sink, staged).encode())
        for sink, reason in lost.items():
            yield _message(_FAILURE, encode(Failure(pipeline.instance, reason, sink)))

    return run


def _pieces(batches: Iterable[pa.RecordBatch], limit: int = 32 * 1024 * 1024) -> Iterator[pa.Table]:
    """The rows in pieces of about `limit` bytes, without empty ones."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size >= limit:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _message(kind: int, payload: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"kind": kind, "payload": payload}], schema=_MESSAGES)


def _merged(pipeline: PipelineDef, staged: Iterable[tuple[str, Staged]]) -> Receipts:
    found: Receipts = {}
    sinks = {sink.name: sink for sink in pipeline.sinks}
    for name, receipt in staged:
        found[name] = SINKS[sinks[name].kind].condense(sinks[name], [*found.get(name, []), receipt])
    return found
