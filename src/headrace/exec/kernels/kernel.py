"""What a kernel is: a name for SQL, DuckDB types, and a function of Arrow arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

ArrowColumn: TypeAlias = Any  # an Arrow array: its stubs do not know which functions take which


class KernelError(ValueError):
    """A value that a kernel cannot take. The message is Spark's error condition, e.g. CAST_INVALID_INPUT."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """`name` is unique and starts with `hr_`. `params` and `result` are DuckDB types. A `slow` kernel runs Python code
    for every row; the list of functions and EXPLAIN say so."""

    name: str
    params: tuple[str, ...]
    result: str
    function: Callable[..., pa.Array[Any]]
    slow: bool = False

    @property
    def unannotated(self) -> Callable[..., pa.Array[Any]]:
        """The function over the chunked arrays that DuckDB passes. DuckDB would evaluate annotations, and fail. It
        counts the parameters of the signature."""

        def run(*columns):  # type: ignore[no-untyped-def]
            return self.function(*(column.combine_chunks() for column in columns))

        names = (f"p{i}" for i in range(len(self.params)))
        positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
        run.__signature__ = inspect.Signature([inspect.Parameter(n, positional) for n in names])  # type: ignore[attr-defined]
        return run


def per_row(kind: pa.DataType, function: Callable[..., Any]) -> Callable[..., pa.Array[Any]]:
    """A function of arrays that calls `function` for every row without NULLs. For slow kernels."""

    def run(*columns: pa.Array[Any]) -> pa.Array[Any]:
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array([None if None in row else function(*row) for row in rows], kind)

    return run
