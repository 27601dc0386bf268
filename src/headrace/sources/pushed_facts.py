"""Metadata columns of pushed records: the peer that sent them, and when they arrived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.ingress.ready import UnitMark
from headrace.model.schema import STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType
from headrace.sources.source_kind import Fact

PUSHED_FACTS: Mapping[str, tuple[DataType, ...]] = {"peer": (STRING,), "arrival": (TIMESTAMP, TIMESTAMP_NTZ)}


@dataclass(frozen=True, slots=True)
class PushedFacts:
    """The facts about some records of a journal. Places are addresses. Both facts are NULL for records that a version
    without them has journaled."""

    marks: Sequence[UnitMark]

    def column(self, key: str, kind: DataType, places: npt.NDArray[np.int64]) -> Fact:
        starts = np.fromiter((mark.address for mark in self.marks), np.int64, len(self.marks))
        units = (np.searchsorted(starts, places, side="right") - 1).tolist()
        if key == "peer":
            return Fact(pa.array([self.marks[i].peer for i in units], pa.string()))
        return Fact(pa.array([self.marks[i].arrival for i in units], pa.int64()).view(kind.arrow))
