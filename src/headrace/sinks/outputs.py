"""Where a file sink keeps its files: a directory, or a prefix of an object store. Names are relative, with slashes.

`FileOutput` states what the protocol of `headrace.sinks.file_sink` needs. `LocalOutput` renames a staged file to its
visible name. `ObjectOutput` copies it on the server and deletes the staged object afterwards: both the copy and the put
of a manifest are atomic there, and a repeated copy changes nothing, so no rename is needed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headrace.base.durable import durable_directory, fsync, write_atomic
from headrace.stores.object_store import ObjectStore
from headrace.stores.store_options import StoreAccess, StoreSettings, is_remote

# Bytes of a joined object. S3 copies no object of more than 5 GiB in one request. A joined Parquet file may be a little
# larger than its parts.
LARGEST_OBJECT = 4 << 30


@dataclass(frozen=True, slots=True)
class OutputInfo:
    """The size of a file, and when it was written (seconds since 1970)."""

    size: int
    mtime: float


class FileOutput(Protocol):
    """The files of one sink. Raises OSError, or the coded errors of `headrace.stores`."""

    @property
    def shown(self) -> str:
        """The directory, as the user wrote it."""
        ...

    @property
    def largest(self) -> int | None:
        """How many bytes a joined file may have; None if there is no limit."""
        ...

    def exists(self, name: str) -> bool: ...

    def info(self, name: str) -> OutputInfo:
        """Raises FileNotFoundError."""
        ...

    def read(self, name: str) -> bytes:
        """Raises FileNotFoundError."""
        ...

    def write(self, name: str, data: bytes, private: bool = False) -> None:
        """Write a small file, atomically and durably. With `private` only the owner can read it."""
        ...

    def stage(self, name: str, write: Callable[[Path], None], private: bool = False) -> None:
        """Write a file whose content `write` makes. The content is durable, and so is what contains its directory.
        `settle` makes the names of the file and of its directory durable. If this fails, nothing of it is left."""
        ...

    def move(self, name: str, to: str) -> None:
        """Give a file another name, or copy it to that name. No reader sees a partial file. Raises
        FileNotFoundError."""
        ...

    def settle(self, names: Iterable[str], parents: bool = False) -> None:
        """Make the names of files durable; with `parents` also those of their directories."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        ...

    def entries(self, directory: str) -> list[str]:
        """The last parts of the names in a directory; none if it does not exist."""
        ...

    def below(self, directory: str, without: str = "") -> list[str]:
        """The names of all files below a directory, except in directories called `without`."""
        ...

    def delete_directory(self, directory: str) -> None:
        """Delete a flat directory. If a task is still writing there, it stays until the next epoch deletes it."""
        ...

    def local(self, names: Iterable[str]) -> contextlib.AbstractContextManager[list[Path]]:
        """The files as local ones, to read."""
        ...


class LocalOutput:
    """A directory of a file system, which may be mounted."""

    largest: int | None = None

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def shown(self) -> str:
        return str(self.root)

    def exists(self, name: str) -> bool:
        return (self.root / name).exists()

    def info(self, name: str) -> OutputInfo:
        found = os.stat(self.root / name)
        return OutputInfo(found.st_size, found.st_mtime)

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def write(self, name: str, data: bytes, private: bool = False) -> None:
        path = self.root / name
        durable_directory(path.parent, 0o700 if private else 0o777)
        write_atomic(path, data)

    def stage(self, name: str, write: Callable[[Path], None], private: bool = False) -> None:
        path, mode = self.root / name, 0o700 if private else 0o777
        durable_directory(path.parent.parent, mode)
        path.parent.mkdir(mode=mode, exist_ok=True)
        try:
            write(path)
            if private:
                path.chmod(0o600)
            fsync(path)
        except BaseException:
            with contextlib.suppress(OSError):  # half a file must not use the disk space that the stream waits for
                path.unlink(missing_ok=True)
            raise

    def move(self, name: str, to: str) -> None:
        durable_directory((self.root / to).parent)
        os.rename(self.root / name, self.root / to)

    def settle(self, names: Iterable[str], parents: bool = False) -> None:
        above = {parent for name in names for parent in (self.root / name).parents[: None if parents else 1]}
        for directory in sorted(d for d in above if d == self.root or self.root in d.parents):
            if directory.exists():
                fsync(directory)

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.root / name)

    def entries(self, directory: str) -> list[str]:
        try:
            return os.listdir(self.root / directory)
        except FileNotFoundError:
            return []

    def below(self, directory: str, without: str = "") -> list[str]:
        found = []
        for at, inner, names in os.walk(self.root / directory):
            inner[:] = [name for name in inner if name != without]
            found += [os.path.relpath(os.path.join(at, name), self.root) for name in names]
        return found

    def delete_directory(self, directory: str) -> None:
        path = self.root / directory
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(path):
                os.unlink(path / name)
            try:
                os.rmdir(path)
            except OSError as problem:
                if problem.errno != errno.ENOTEMPTY:
                    raise

    @contextlib.contextmanager
    def local(self, names: Iterable[str]) -> Iterator[list[Path]]:
        yield [self.root / name for name in names]


class ObjectOutput:
    """A prefix of an object store."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    @property
    def shown(self) -> str:
        return self.store.access.url

    @property
    def largest(self) -> int | None:
        return LARGEST_OBJECT

    def exists(self, name: str) -> bool:
        return self.store.info(name) is not None

    def info(self, name: str) -> OutputInfo:
        found = self.store.info(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", self.store.url(name))
        return OutputInfo(found.size, found.mtime_ns / 1e9)

    def read(self, name: str) -> bytes:
        return self.store.read(name)

    def write(self, name: str, data: bytes, private: bool = False) -> None:
        self.store.put(name, data)

    def stage(self, name: str, write: Callable[[Path], None], private: bool = False) -> None:
        """Makes the file on the local disk first: writers need a path, and nothing may be put if they fail."""
        with tempfile.TemporaryDirectory(prefix="headrace-") as directory:
            path = Path(directory, "staged")
            write(path)
            self.store.put_file(name, path)

    def move(self, name: str, to: str) -> None:
        """Leaves the object under its old name, too: staged objects are deleted with their directory."""
        self.store.copy(name, to)

    def settle(self, names: Iterable[str], parents: bool = False) -> None:
        """An object is durable when its put or copy returns."""

    def delete(self, name: str) -> None:
        self.store.delete(name)

    def entries(self, directory: str) -> list[str]:
        return [name.rpartition("/")[2] for name in self.store.entries(directory)]

    def below(self, directory: str, without: str = "") -> list[str]:
        found = [info.name for info in self.store.objects(directory)]
        return [name for name in found if not without or without not in name.split("/")[:-1]]

    def delete_directory(self, directory: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            for info in self.store.objects(directory):
                self.store.delete(info.name)
            self.store.delete_directory(directory)

    @contextlib.contextmanager
    def local(self, names: Iterable[str]) -> Iterator[list[Path]]:
        with tempfile.TemporaryDirectory(prefix="headrace-") as directory:
            found = []
            for number, name in enumerate(names):
                path = Path(directory, f"{number}-{name.rpartition('/')[2]}")
                self.store.fetch(name, path)
                found.append(path)
            yield found


def output_of(settings: StoreSettings) -> FileOutput:
    """The place that a sink's path names. Touches nothing."""
    if is_remote(settings.path):
        return ObjectOutput(ObjectStore(StoreAccess.of(settings)))
    return LocalOutput(Path(settings.path))
