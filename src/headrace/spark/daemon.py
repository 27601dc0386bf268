"""The process from which Spark forks its Python workers, with our packages already imported.

Spark starts it by name (`spark.python.daemon.module`). An epoch uses several workers at once. Each would import Arrow,
DuckDB and the formats by itself, which takes most of a second of CPU; workers that are forked from here have them.
Compiled kernels are loaded here for the same reason: 0.4 s of CPU once instead of 0.4 s in each worker. The first batch
of a forked worker then takes 2 ms instead of 440 to 840. The kernels that read, write and merge what crosses the bridge
are also compiled here if they are not in the cache. Those that fold are loaded by each worker, in 70 ms of CPU.

Spark's worker collects garbage after every task. What is loaded here is frozen before the first fork, so that a
collection does not walk it: that took 0.11 s of CPU per task, for 190,000 objects of modules that never become garbage.
"""

from __future__ import annotations

import gc
import runpy

import pandas  # noqa: F401  # Spark's own worker imports it for Arrow
import pyspark.worker  # noqa: F401  # before the freeze

import headrace.spark.epochs
import headrace.spark.state_host  # noqa: F401
from headrace.bridge import merging, rows
from headrace.formats import warm

if __name__ == "__main__":
    warm.load()
    rows.warm()
    merging.warm()
    gc.freeze()
    runpy.run_module("pyspark.daemon", run_name="__main__")
