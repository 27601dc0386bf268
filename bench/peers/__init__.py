"""headrace beside Spark, Flink and DuckDB: the same bytes, one machine, one run (make bench-peers).

Each system runs in an environment and a process of its own (`bench/peers/environments.py`). The modules that those
processes import (queries, nexmark, workloads, worker and the runners) use the standard library and the system only.
"""
