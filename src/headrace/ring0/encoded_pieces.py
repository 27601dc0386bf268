"""The partial aggregates of a task's batches for one pipeline, cut by bucket and window, in the form that is sent.

With many groups most windows are in one batch only, and their pieces are sent as they are. Only a piece that several
batches have is merged, by kernels. DuckDB would read and group all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.bridge.merge_form import MergeForm
from headrace.bridge.packs import PackEntry
from headrace.ring0.cuts import CutPiece

BucketEntry = tuple[int, PackEntry]


class EncodedPieces:
    """Pieces by bucket and window. `bytes` is the size of all."""

    def __init__(self) -> None:
        self._pieces: dict[CutPiece, list[PackEntry]] = {}
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, entries: Iterable[BucketEntry]) -> None:
        """Keep the pieces of one batch."""
        for bucket, entry in entries:
            self._pieces.setdefault((bucket, entry.start, entry.end), []).append(entry)
            self.bytes += len(entry.payload)

    def merge(self, form: MergeForm) -> None:
        """Merge pieces of the same bucket and window. Raises CannotMerge; then nothing is changed."""
        merged: dict[CutPiece, list[PackEntry]] = {}
        for piece, entries in self._pieces.items():
            if len(entries) > 1:
                rows, payload = form.merge([(entry.rows, entry.payload) for entry in entries])
                merged[piece] = [entries[0]._replace(rows=rows, payload=payload)]
        self._pieces |= merged
        self.bytes = sum(len(entry.payload) for entries in self._pieces.values() for entry in entries)

    def entries(self) -> list[BucketEntry]:
        """All pieces, each with its bucket, ordered by bucket and window."""
        return [(piece[0], entry) for piece, entries in sorted(self._pieces.items()) for entry in entries]
