"""Which of Spark's stateful operators, with which settings, costs least for small epochs: 64 lanes, a few rows each.

The same work in every variant: each lane gets a few rows and keeps about a kilobyte for each of three open windows.
`blob` rewrites all windows of a lane as one value; `map` rewrites only the window that was touched.
There is no required figure: the choice is explained in docs/design/2026-11-16-state-operator.md.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from bench.report import Report, environment, main
from headrace.model.program import Meaning
from headrace.spark.session import QUERY_SETTINGS, start

WARM, MEASURED = 15, 30
LANES, OPEN_WINDOWS = 64, 3
PAYLOAD = b"x" * 1024
OUTPUT = "lane BIGINT, n BIGINT"
_DATA = StructType([StructField("data", BinaryType())])
_WINDOW = StructType([StructField("window", LongType())])


class BlobProcessor(StatefulProcessor):
    """transformWithState, one value per lane."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("blob", _DATA)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[SparkRow]:
        count = sum(1 for _ in rows)
        found = self.state.get()
        blob = bytes(found[0]) if found else b""
        self.state.update(((blob + PAYLOAD)[: OPEN_WINDOWS * len(PAYLOAD)],))
        yield SparkRow(lane=key[0], n=count)

    def close(self) -> None: ...


class MapProcessor(StatefulProcessor):
    """transformWithState, a map entry per window: only the touched window is rewritten."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getMapState("windows", _WINDOW, _DATA)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[SparkRow]:
        values = [r[0] for r in rows]
        window = max(values) // LANES % OPEN_WINDOWS
        self.state.getValue((window,))
        self.state.updateValue((window,), (PAYLOAD,))
        yield SparkRow(lane=key[0], n=len(values))

    def close(self) -> None: ...


def _pandas(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    count = sum(len(frame) for frame in frames)
    blob = bytes(state.get[0]) if state.exists else b""
    state.update(((blob + PAYLOAD)[: OPEN_WINDOWS * len(PAYLOAD)],))
    yield pd.DataFrame({"lane": [key[0]], "n": [count]})


def _rows(spark: SparkSession) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", LANES * 3).load()
    return source.select("value", (f.col("value") % LANES).alias("lane"))


def pandas_state(spark: SparkSession) -> DataFrame:
    return _rows(spark).groupBy("lane").applyInPandasWithState(_pandas, OUTPUT, "data BINARY", "update", "NoTimeout")


def tws_blob(spark: SparkSession) -> DataFrame:
    return _rows(spark).groupBy("lane").transformWithState(BlobProcessor(), OUTPUT, "Update", "None")


def tws_map(spark: SparkSession) -> DataFrame:
    return _rows(spark).groupBy("lane").transformWithState(MapProcessor(), OUTPUT, "Update", "None")


_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
VARIANTS: dict[str, tuple[Callable[[SparkSession], DataFrame], dict[str, str | None]]] = {
    "applyInPandasWithState, blob": (pandas_state, {}),
    "transformWithState, blob": (tws_blob, {}),
    "transformWithState, map": (tws_map, {}),
    "transformWithState, map, default checkpoint file manager": (tws_map, {_MANAGER: None}),
    "transformWithState, map, no changelog": (tws_map, {_CHANGELOG: "false"}),
    "transformWithState, map, 8 shuffle partitions": (tws_map, {"spark.sql.shuffle.partitions": "8"}),
}


def _collect(batch: DataFrame, epoch: int) -> None:
    batch.collect()


def _median_ms(spark: SparkSession, make: Callable[[SparkSession], DataFrame], checkpoint: Path) -> float:
    query = (
        make(spark)
        .writeStream.foreachBatch(_collect)
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        deadline = time.monotonic() + 180
        while (query.lastProgress or {"batchId": -1})["batchId"] < WARM + MEASURED and time.monotonic() < deadline:
            if not query.isActive:
                raise RuntimeError(str(query.exception()))
            time.sleep(0.2)
        reports = [p for p in query.recentProgress if p["batchId"] >= WARM]
    finally:
        query.stop()
    return statistics.median(float(p["durationMs"]["triggerExecution"]) for p in reports)


def measure(say: Callable[[str], None]) -> Report:
    report = Report(facts=environment("pyspark"))
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        work = Path(scratch)
        engine = start(None, work / "spark.log", Meaning())
        try:
            times: dict[str, list[float]] = {name: [] for name in VARIANTS}
            for turn in range(2):
                for number, (name, (make, changes)) in enumerate(VARIANTS.items()):
                    spark = engine.spark.newSession()
                    settings = QUERY_SETTINGS | {"spark.sql.shuffle.partitions": str(engine.cores)} | changes
                    for key, value in settings.items():
                        if value is not None:
                            spark.conf.set(key, value)
                    found = _median_ms(spark, make, work / f"{turn}-{number}")
                    times[name].append(found)
                    say(f"round {turn + 1} of 2: {name}: {found:.0f} ms an epoch")
        finally:
            engine.stop()
    report.facts["epoch_ms"] = {name: [round(t) for t in found] for name, found in times.items()}
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
