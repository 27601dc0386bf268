"""Arrow lists as flat NumPy arrays, for kernels over the values of groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.arrays import Ints

Doubles = npt.NDArray[np.float64]


def flat(lists: pa.Array[Any]) -> tuple[Any, Ints]:
    """The elements of all lists, and how many each list has. NULL counts as empty."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return pc.list_flatten(lists), lengths


def owners(lengths: Ints) -> Ints:
    """The index of the list that each element is in."""
    return np.repeat(np.arange(len(lengths)), lengths)


def lists_of(elements: pa.Array[Any], ends: Ints, nulls: Any) -> pa.Array[Any]:
    """An array of lists. `ends` is where each list ends among the elements."""
    offsets: Any = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    found: pa.Array[Any] = pa.ListArray.from_arrays(offsets, elements, mask=nulls)
    return found


def structs(columns: dict[str, Doubles], valid: npt.NDArray[np.bool_]) -> pa.Array[Any]:
    """An array of structs of DOUBLE. Rows that are not `valid` are NULL."""
    arrays: list[pa.Array[Any]] = [pa.array(column, pa.float64()) for column in columns.values()]
    return pa.StructArray.from_arrays(arrays, list(columns), mask=pa.array(~valid))
