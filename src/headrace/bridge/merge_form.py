"""Recognizes programs whose partial aggregates the kernels of `headrace.bridge.kernels.merges` can merge: sums, minima
and maxima of numbers and times, by keys that are not floating-point numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.base.arrays import Ints
from headrace.base.identity import kept_by_identity
from headrace.bridge.kernels import merges as k
from headrace.bridge.merging import Counted, merge_blobs
from headrace.bridge.rows import BlobLayout, layout_of
from headrace.exec.aggregates import NEWEST, schema_of
from headrace.model.program import Partial, Ring0Program, Ring1Program

KEPT = 4096


@dataclass(frozen=True, slots=True)
class MergeForm:
    """How the kernels merge partials: their layout, how many columns name a group, and how each other column is
    merged."""

    layout: BlobLayout
    keys: int
    kinds: Ints

    def merge(self, segments: Sequence[Counted]) -> Counted:
        """One segment of several. Raises CannotMerge."""
        blob, sizes = self.merge_lanes([segments])
        return int(sizes[0]), blob.tobytes()

    def merge_lanes(self, lanes: Sequence[Sequence[Counted]]) -> tuple[npt.NDArray[np.uint8], Ints]:
        """The groups of all lanes as one blob, and the number of groups of each. Raises CannotMerge."""
        return merge_blobs(self.layout, self.keys, self.kinds, lanes)


@kept_by_identity(KEPT)
def merge_form(program: Ring0Program | Ring1Program) -> MergeForm | None:
    """How the kernels merge the partials of this program object, None if only DuckDB can."""
    schema = schema_of(program)
    layout = layout_of(schema)
    if layout is None or (program.window is not None and program.window.kind == "session"):
        return None
    if not all(map(_usable_key, [key.type.arrow for key in program.keys])):
        return None
    kinds = [_kind(partial) for partial in program.partials]
    kinds += [k.SUM_INTS] if NEWEST in schema.names else []
    known = [kind for kind in kinds if kind is not None]
    if len(known) < len(kinds):
        return None
    return MergeForm(layout, len(schema) - len(kinds), np.array(known, np.int64))


def _usable_key(kind: pa.DataType) -> bool:
    # Equal floating-point numbers need not have the same bytes.
    return not pa.types.is_floating(kind)


def _kind(state: Partial) -> int | None:
    """How the kernels merge a partial, None if they cannot."""
    kind, call, name = state.type.arrow, state.merge, state.name
    whole = pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind)
    if call == f"sum({name})":
        if kind == pa.float64():
            return k.SUM_DOUBLES
        if kind == pa.int64():
            return k.SUM_INTS
        return k.SUM_LONGS if pa.types.is_decimal128(kind) and kind.precision == 38 else None
    if kind == pa.float64():
        return {f"fsum({name})": k.KAHAN, f"min({name})": k.MIN_DOUBLES, f"max({name})": k.MAX_DOUBLES}.get(call)
    if pa.types.is_boolean(kind):
        return {f"bool_and({name})": k.MIN_INTS, f"bool_or({name})": k.MAX_INTS}.get(call)
    return {f"min({name})": k.MIN_INTS, f"max({name})": k.MAX_INTS}.get(call) if whole else None
