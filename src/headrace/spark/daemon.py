"""The process from which Spark forks its Python workers, with our packages already loaded.

Spark starts it by name (`spark.python.daemon.module`). An epoch uses several workers at once, and each would import
Arrow, DuckDB and the formats by itself, most of a second of CPU apiece before the first result; forked from here they
have them.
"""

from __future__ import annotations

import runpy

import pandas  # noqa: F401  # what Spark's own worker imports for Arrow

import headrace.spark.epochs
import headrace.spark.state_host  # noqa: F401

if __name__ == "__main__":
    runpy.run_module("pyspark.daemon", run_name="__main__")
