"""What waiting for rows saves: processor time and epochs a second of a trickle, for several values of `max_latency`.

One stream of generated rows (2,000 a second) with one windowed pipeline, one hub after the other on one Spark session;
warm-up left out. How long a row waits in the worst case is `max_latency` plus the epoch in flight.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import headrace
from bench.processes import usage
from bench.report import Report, environment, main
from headrace.model.program import Meaning
from headrace.spark.session import Engine, start

WAITS = ("0 ms", "100 ms", "500 ms", "1 s", "3 s")
WARM, MEASURED = 8.0, 15.0


def one(engine: Engine, directory: Path, wait: str, seconds: float) -> tuple[float, float, float]:
    """Epochs a second, processor seconds a second, milliseconds an epoch."""
    with headrace.connect(directory, spark=engine.spark) as hub:
        hub.sql(
            "CREATE STREAM s (device STRING, temp DOUBLE, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS) "
            f"WITH (source = 'generator', format = 'json', rate = '2000', max_latency = '{wait}', max_rows = 1000000);"
            "CREATE SINK m WITH (type = 'memory');"
            "CREATE PIPELINE p INTO m AS SELECT device, count(*) AS n, avg(temp) AS mean FROM s "
            "GROUP BY window(ts, '10 seconds'), device"
        )
        stream = hub.streams["s"]
        time.sleep(WARM)
        epoch, (used, _), began = stream.status().epoch, usage(), time.perf_counter()
        time.sleep(seconds)
        status, (now, _), took = stream.status(), usage(), time.perf_counter() - began
        return (status.epoch - epoch) / took, (now - used) / took, status.epoch_ms or 0.0


def measure(say: Callable[[str], None]) -> Report:
    report = Report(facts=environment("pyspark", "duckdb"))
    seconds = 6.0 if "--quick" in sys.argv else MEASURED
    with tempfile.TemporaryDirectory() as work:
        engine = start(None, Path(work) / "spark.log", Meaning())
        try:
            one(engine, Path(work) / "warm", "0 ms", seconds)
            found = {}
            for i, wait in enumerate(WAITS):
                found[wait] = rate, used, took = one(engine, Path(work) / str(i), wait, seconds)
                say(f"max_latency {wait}: {rate:.2f} epochs/s, {used:.2f} processor seconds/s, {took:.0f} ms an epoch")
        finally:
            engine.stop()
    report.require("epochs a second with max_latency 1 s", found["1 s"][0], 1.2, "at most")
    report.require("processor time with max_latency 1 s against none", found["1 s"][1] / found["0 ms"][1], 1, "at most")
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
