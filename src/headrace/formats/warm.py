"""Compiles the kernels of the formats ahead of time (`headrace.ring0.ready_kernels` compiles all).

Compiling takes half a minute on a new machine. Loading the compiled code takes 0.4 s of CPU. Spark forks its Python
workers from a process that has called `load` (`headrace.spark.daemon`), so the workers pay neither.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from headrace.formats import FORMATS
from headrace.formats.format_kind import Format
from headrace.formats.index import view_of
from headrace.formats.kernels import scan_json
from headrace.formats.kernels.jit import kernel_directory
from headrace.model.schema import Field, Schema, parse_type

_SCALARS = (
    "BOOLEAN", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP", "DECIMAL(10,2)",
)  # fmt: skip
_READY = "ready"  # a file in the cache directory: `ready` has compiled every kernel
_NESTED = ("STRUCT<a: INT>", "ARRAY<INT>", "MAP<STRING, INT>")


def warm_up(fmt: Format, columns: Iterable[int]) -> None:
    """Compile or load every kernel that decodes these columns. Thread-safe. Takes almost no time when they are
    loaded."""
    fmt.decode(b"", tuple(columns), "", 0)


def schema_of(types: Iterable[str]) -> Schema:
    """A schema of these types."""
    return Schema(tuple(Field(f"c{i}", parse_type(t)) for i, t in enumerate(types)))


def ready() -> None:
    """Compile or load the kernels of json and csv for all types, and record that they are compiled."""
    for name, types in (("json", _SCALARS + _NESTED), ("csv", _SCALARS)):
        schema = schema_of(types)
        warm_up(FORMATS[name].make(schema, {}), range(len(schema)))
    scan_json.count_items(view_of(b"{}"), False)
    (kernel_directory() / _READY).touch()


def compiled() -> bool:
    """True if every kernel is compiled on this machine."""
    return (kernel_directory() / _READY).exists()


def load() -> None:
    """Load the kernels of json and csv if all of them are compiled. Otherwise a task compiles each kernel when it needs
    it: a stream needs few of them, and compiling all takes half a minute."""
    if compiled():
        ready()


def main() -> None:
    """Compile the kernels that are not compiled yet, and print where they are."""
    began = time.perf_counter()
    ready()
    print(f"kernels are ready in {kernel_directory()} ({time.perf_counter() - began:.1f} s)")


if __name__ == "__main__":
    main()
