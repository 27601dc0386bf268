"""A store of lane state without Spark, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.ring1.lane_state import BlobKey


class MemoryStore:
    """The state of a lane in a dictionary. `writes` counts the blobs that were written."""

    def __init__(self) -> None:
        self.head: bytes | None = None
        self.blobs: dict[BlobKey, bytes] = {}
        self.writes = 0

    def header(self) -> bytes | None:
        return self.head

    def set_header(self, data: bytes) -> None:
        self.head = data

    def get(self, key: BlobKey) -> bytes | None:
        return self.blobs.get(key)

    def get_many(self, keys: Sequence[BlobKey]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def put(self, key: BlobKey, data: bytes) -> None:
        self.blobs[key] = data
        self.writes += 1

    def put_many(self, blobs: Sequence[tuple[BlobKey, bytes]]) -> None:
        for key, data in blobs:
            self.put(key, data)

    def remove(self, key: BlobKey) -> None:
        self.blobs.pop(key, None)

    def clear(self) -> None:
        self.head = None
        self.blobs.clear()
