"""Metadata columns of files: path, name, position of the record, modification time of the file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.model.schema import BIGINT, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType
from headrace.sources.handles import Handle, mtime_ns_of
from headrace.sources.source_kind import Fact

FILE_METADATA: Mapping[str, tuple[DataType, ...]] = {
    "path": (STRING,),
    "name": (STRING,),
    "position": (BIGINT,),
    "modification_time": (TIMESTAMP, TIMESTAMP_NTZ),
}


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The facts about the records of one file. Places are bytes of the file, after decompression."""

    path: str
    mtime_ns: int

    @staticmethod
    def of(fd: Handle, path: str) -> FileFacts:
        """The facts of an open file."""
        return FileFacts(path, mtime_ns_of(fd))

    def column(self, key: str, kind: DataType, places: npt.NDArray[np.int64]) -> Fact:
        if key == "position":
            return Fact(pa.array(places, pa.int64()))
        if key == "modification_time":
            micros: Any = pa.scalar(self.mtime_ns // 1000, pa.int64())
            return Fact(pa.repeat(micros, len(places)).view(kind.arrow))
        text: Any = pa.scalar(self.path if key == "path" else os.path.basename(self.path))
        return Fact(pa.repeat(text, len(places)))
