"""Files on HDFS, as far as that can be seen without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem

from headrace.stores import object_store
from headrace.stores.object_store import ObjectStore
from headrace.stores.store_options import StoreAccess


class LikeHdfs:
    """A file system that does not rename over a file."""

    def __init__(self) -> None:
        self._files = LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def move(self, path: str, to: str) -> None:
        if Path(to).exists():
            raise OSError(f"{to} exists")
        self._files.move(path, to)


def test_on_hdfs_a_file_takes_the_place_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_file_system", lambda access: LikeHdfs())
    store = ObjectStore(StoreAccess(f"hdfs://host:1{tmp_path}"))
    store.put("a", b"old")
    store.put("a", b"new")
    store.put("staged", b"newest")
    store.copy("staged", "a")
    with pytest.raises(FileNotFoundError):
        store.copy("staged", "a")
    assert store.read("a") == b"newest"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
