"""DuckDB as the engine inside a task: connections, aggregation SQL, bounds on the size of values."""
