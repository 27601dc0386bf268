"""`partition_by`: rows with the same values of some columns go to one directory, `column=value/...`, as in Spark.

The files do not have these columns; readers take the values from the path. NULL and the empty text are
`__HIVE_DEFAULT_PARTITION__`, as Spark writes them. All characters except letters, digits, `_`, `.`, `-` and `~` are
percent-encoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from headrace.base.python_values import python_rows
from headrace.base.unknown import unknown
from headrace.errors import BadOption, TypeMismatch, UnknownColumn
from headrace.model.schema import Scalar, Schema

DEFAULT = "__HIVE_DEFAULT_PARTITION__"
_ALLOWED = {"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "STRING", "DATE"}


def column_names(value: str) -> tuple[str, ...]:
    """Reads an option: names of columns, separated by commas."""
    names = tuple(name.strip() for name in value.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError("names of columns, separated by commas, each once")
    return names


def require_columns(sink: str, option: str, names: Sequence[str], output: Schema) -> None:
    """Raise UnknownColumn unless the output has all these columns."""
    for name in names:
        if name not in output.names:
            raise unknown(UnknownColumn, "column", name, output.names, of=f"the output ({option} of sink {sink})")


def check_partitions(sink: str, names: Sequence[str], output: Schema) -> None:
    """Raise a coded error unless rows of `output` can be partitioned by these columns."""
    require_columns(sink, "partition_by", names, output)
    for field in output:
        kind = field.type
        if field.name in names and not (isinstance(kind, Scalar) and kind.name in _ALLOWED):
            raise TypeMismatch(
                f"sink {sink} cannot be partitioned by {field.name}, which is {kind}",
                advice="Partition by BOOLEAN, integers, STRING or DATE. Cast the column in the query.",
                column=field.name,
            )
    if names and len(names) == len(output):
        raise BadOption(
            f"sink {sink} is partitioned by all columns of the output",
            advice="Leave out at least one column, or add one to the query.",
            option="partition_by",
        )


def by_partition(table: pa.Table, columns: Sequence[str]) -> list[tuple[tuple[str | None, ...], pa.Table]]:
    """The rows of each partition, without the partition's columns and in their order, with its values as text."""
    if not columns:
        return [((), table)]
    codes = np.zeros(table.num_rows, np.int64)
    for name in columns:
        column: Any = table.column(name).combine_chunks()
        encoded = column.dictionary_encode(null_encoding="encode")
        _, dense = np.unique(codes * len(encoded.dictionary) + encoded.indices.to_numpy(), return_inverse=True)
        codes = dense.astype(np.int64)
    order = np.argsort(codes, kind="stable")
    ends = [*np.flatnonzero(np.diff(codes[order])) + 1, table.num_rows]
    rest, keys = table.drop_columns(list(columns)).take(order), table.select(list(columns)).take(order)
    found, begin = [], 0
    for end in ends:
        values = tuple(_text(value) for value in python_rows(keys.slice(begin, 1))[0].values())
        found.append((values, rest.slice(begin, end - begin)))
        begin = end
    return found


def directory_of(columns: Sequence[str], values: Sequence[str | None]) -> str:
    """The directory of a partition, relative to the sink's; empty without partitions."""
    return "/".join(
        f"{quote(name, safe='')}={quote(value, safe='') if value else DEFAULT}"
        for name, value in zip(columns, values, strict=True)
    )


def _text(value: object) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date):
        return value.isoformat()
    return str(value)
