"""The process from which Spark forks its Python workers, with our packages already loaded.

Spark starts it by name (`spark.python.daemon.module`). An epoch uses several workers at once, and each would import
Arrow, DuckDB and the formats by itself, most of a second of CPU apiece before the first result; forked from here they
have them. So it is with the compiled kernels: loading them here takes 0.4 s of CPU once, instead of 0.4 s in each
worker (the first batch of a forked worker then takes 2 ms instead of 440 to 840). The few kernels of the bridge, which
every pipeline with state needs, are compiled here if they are not yet.
"""

from __future__ import annotations

import runpy

import pandas  # noqa: F401  # what Spark's own worker imports for Arrow

import headrace.spark.epochs
import headrace.spark.state_host  # noqa: F401
from headrace.bridge import rows
from headrace.formats import warm

if __name__ == "__main__":
    warm.load()
    rows.warm()
    runpy.run_module("pyspark.daemon", run_name="__main__")
