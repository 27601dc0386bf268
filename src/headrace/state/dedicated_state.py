"""Where a pipeline on the dedicated host keeps the state of its query, in the directory of its first stream.

    <stream>/dedicated/<instance>-<fresh>/<turn>/checkpoint       Spark's checkpoint of the query
    <stream>/dedicated/<instance>-<fresh>/<turn>/checkpoint.id    part of the key of its output in sinks
    <stream>/dedicated/<instance>-<fresh>/<turn>/progress.json    its newest committed batch
    <stream>/dedicated/<instance>-<fresh>/<turn>/begin.json       where it begins to read; written last

`headrace.stream.dedicated_runtime` says when a new directory begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.model.definitions import PipelineDef

DEDICATED = "dedicated"
BEGIN = "begin.json"


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a query without a checkpoint begins to read: the position in the feed of each stream. `skipped` rows were
    in the feeds and are not read, because the pipeline lost its state."""

    positions: dict[str, int]
    skipped: int = 0


def dedicated_home(stream_directory: Path, pipeline: PipelineDef) -> Path:
    """The directory of a pipeline's query; `stream_directory` is that of its first stream."""
    return stream_directory / DEDICATED / f"{pipeline.instance}-{pipeline.fresh}"


def newest_turn(home: Path) -> int:
    """The newest turn that has begun. -1 before the first."""
    return max((int(p.parent.name) for p in home.glob(f"*/{BEGIN}") if p.parent.name.isdigit()), default=-1)
