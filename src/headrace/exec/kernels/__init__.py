"""Functions that DuckDB does not have with Spark's meaning, as vectorised kernels over Arrow arrays.

Every connection that evaluates user expressions installs them. A kernel gets one Arrow array per argument, with all
rows of a batch, NULLs included, and returns an array of the same length. It must be pure: the same input gives the same
output in every process. It raises `KernelError` with Spark's error condition when a value is bad.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.exec.kernels import (
    arithmetic,
    binaries,
    bitmaps,
    codes,
    counts,
    decimals,
    hashes,
    interval_sums,
    interval_texts,
    json_records,
    json_texts,
    moments,
    number_texts,
    regex_matches,
    sketches,
    strings,
    timestamps,
    urls,
)
from headrace.exec.kernels.kernel import Kernel
from headrace.exec.kernels.session_zone import install_session_zone
from headrace.exec.map_entries import MAKE_MAP

if TYPE_CHECKING:
    import duckdb

_MODULES = (
    arithmetic,
    binaries,
    bitmaps,
    codes,
    counts,
    decimals,
    hashes,
    interval_sums,
    interval_texts,
    json_records,
    json_texts,
    moments,
    number_texts,
    regex_matches,
    sketches,
    strings,
    timestamps,
    urls,
)
KERNELS: dict[str, Kernel] = {kernel.name: kernel for module in _MODULES for kernel in module.KERNELS}


def install(connection: duckdb.DuckDBPyConnection, time_zone: str) -> None:
    """Make all kernels available to the SQL of `connection`, whose TimeZone is `time_zone`."""
    from duckdb.func import FunctionNullHandling, PythonUDFType

    for kernel in KERNELS.values():
        connection.create_function(
            kernel.name,
            kernel.unannotated,
            [connection.sqltype(param) for param in kernel.params],
            connection.sqltype(kernel.result),
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
        )
    install_session_zone(connection, time_zone)
    connection.execute(MAKE_MAP)
