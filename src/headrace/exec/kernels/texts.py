"""Kernels over strings."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.exec.kernels.kernel import Kernel


def _reverse(text: pa.Array[Any]) -> pa.Array[Any]:
    """By code points, as Java does. DuckDB reverses by graphemes."""
    return pc.utf8_reverse(text)


KERNELS: tuple[Kernel, ...] = (Kernel("hr_reverse", ("VARCHAR",), "VARCHAR", _reverse),)
