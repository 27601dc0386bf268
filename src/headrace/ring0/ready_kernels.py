"""Compiles all kernels ahead of time: run `python -m headrace.ring0.ready_kernels` once after installing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.bridge import merging, rows
from headrace.bridge.kernels import folds as k
from headrace.bridge.rows import layout_of
from headrace.formats import warm
from headrace.model.program import Meaning
from headrace.ring0.cuts import CutRule
from headrace.ring0.fold_columns import FoldColumns
from headrace.ring0.fold_program import FoldKey, FoldProgram, FoldStep
from headrace.ring0.folding import fold


def fold_a_row() -> None:
    """Compile or load the kernels that fold. Uses DuckDB, so not in a process that forks others."""
    table = pa.table({"c0": pa.array(["a"]), "c1": pa.array([1.5])})
    fields = pa.field("k0", pa.string()), pa.field("p0", pa.int64()), pa.field("p1", pa.float64())
    layout = layout_of(pa.schema(fields))
    assert layout is not None
    program = FoldProgram(
        filter=None,
        window=None,
        keys=(FoldKey("c0", "CAST((c0) AS VARCHAR)", pa.string()),),
        steps=(FoldStep(k.COUNT, "", None), FoldStep(k.SUM_DOUBLES, "c1", pa.float64())),
        widths=layout.widths,
        digest=layout.digest,
        computed=0.0,
    )
    fold(FoldColumns(Meaning(), table, [[program]], {}), [program], [0], CutRule((0,), 2, False), None)
    numbers = [np.zeros(2, np.int32) for _ in range(2)]
    k.group_hashed(np.zeros(1, np.int64), np.full(2, k.NO_GROUP, np.int32), *numbers)  # many possible groups


def main() -> None:
    """Compile what is not compiled yet. The formats come last: they record that everything is compiled."""
    rows.warm()
    fold_a_row()
    merging.warm()
    warm.main()


if __name__ == "__main__":
    main()
