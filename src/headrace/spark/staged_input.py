"""The staged rows of one pipeline as a relation of the session."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.bridge.spark_rows import RowsForSpark, rows_in_messages
from headrace.model.schema import Schema

# Spark hands at most 10,000 rows at a time to Python by default. With rows of this size that is 40 MB, less than the 64
# MB at which it would cut a batch.
NARROW_BYTES = 4096
_PATTERN = re.compile(r"[*?\[\]{}\\]")


def staged_input(spark: SparkSession, columns: Schema, staged: Sequence[RowsForSpark]) -> DataFrame:
    """The rows that travelled in messages and those in files, as one relation."""
    schema = spark_schema(columns)
    files = [part.file for part in staged if part.file]
    inline = rows_in_messages(staged, columns.arrow)
    if not files:
        return spark.createDataFrame(inline, schema)
    # Paths are names, not patterns: the state directory may have [, { or * in its path. Spark 4.3 then reads each of
    # several files as often as there are files, so they are read one by one.
    reader = spark.read.option("__globPaths__", "false").schema(schema)
    patterns = _PATTERN.search(files[0]) is not None
    frame = reduce(DataFrame.unionAll, map(reader.parquet, files)) if patterns else reader.parquet(*files)
    return frame.unionAll(spark.createDataFrame(inline, schema)) if inline.num_rows else frame


def is_large(staged: Sequence[RowsForSpark]) -> bool:
    """True if rows are in files, so that tasks should write the output, too."""
    return any(part.file for part in staged)


def are_narrow(staged: Sequence[RowsForSpark]) -> bool:
    """True if the staged rows are small, so that batches need no limit in bytes."""
    size = sum(part.size or len(part.data) for part in staged)
    return size <= NARROW_BYTES * sum(part.rows for part in staged)


def quoted(name: str) -> str:
    """A name in Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


@lru_cache(maxsize=256)
def spark_schema(schema: Schema) -> StructType:
    """The columns as Spark's schema, all nullable."""
    parsed = StructType.fromDDL(", ".join(f"{quoted(f.name)} {f.type.ddl}" for f in schema))
    assert isinstance(parsed, StructType), "the DDL of columns is a struct"
    return parsed
