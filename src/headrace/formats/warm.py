"""Compile the kernels before they are needed: `python -m headrace.formats.warm` once after installing.

Compiling takes half a minute on a new machine, loading the compiled code 0.4 s of CPU. Spark's workers are forked from
a process that has called `load` (`headrace.spark.daemon`), so they pay neither.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from headrace.formats import FORMATS
from headrace.formats.base import Format
from headrace.formats.kernels.jit import kernel_directory
from headrace.model.schema import Field, Schema, parse_type

_SCALARS = (
    "BOOLEAN", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP", "DECIMAL(10,2)",
)  # fmt: skip
_READY = "ready"  # a file in the cache directory: all that `ready` makes is there
_NESTED = ("STRUCT<a: INT>", "ARRAY<INT>", "MAP<STRING, INT>")


def warm_up(fmt: Format, columns: Iterable[int]) -> None:
    """Make ready every kernel that decoding these columns takes. Thread-safe; costs next to nothing when warm."""
    fmt.decode(b"", tuple(columns), "", 0)


def schema_of(types: Iterable[str]) -> Schema:
    """A schema of these types."""
    return Schema(tuple(Field(f"c{i}", parse_type(t)) for i, t in enumerate(types)))


def ready() -> None:
    """Make ready the kernels of json and csv for all types, and remember that they are compiled."""
    for name, types in (("json", _SCALARS + _NESTED), ("csv", _SCALARS)):
        schema = schema_of(types)
        warm_up(FORMATS[name].make(schema, {}), range(len(schema)))
    (kernel_directory() / _READY).touch()


def load() -> None:
    """Load the kernels of json and csv if all of them are compiled. If not, each is compiled when a task needs it: a
    stream needs few of them, and all take half a minute."""
    if (kernel_directory() / _READY).exists():
        ready()


def main() -> None:
    """Compile what is not compiled yet, and say where it is."""
    began = time.perf_counter()
    ready()
    print(f"kernels are ready in {kernel_directory()} ({time.perf_counter() - began:.1f} s)")


if __name__ == "__main__":
    main()
