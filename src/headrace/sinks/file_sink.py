"""Sinks that write files into a directory, exactly once per epoch. A file format only adds a `write` function.

    <path>/part-<writer>-<instance>-<epoch>-<k>.<ext>                     visible files
    <path>/_headrace/staging/<writer>-<instance>-<epoch>/<uuid>.staged    files that tasks stage
    <path>/_headrace/manifests/<writer>-<instance>-<epoch>.promise        the files of a promised epoch
    <path>/_headrace/manifests/<writer>-<instance>-<epoch>.json           the files of a committed epoch

A manifest has a checksum. One that does not match it is StateDamaged with its path, and nothing is renamed or deleted.

`writer` identifies (checkpoint, sink name), so pipelines, sinks and hubs may share a directory.

**The protocol, and why it is exactly once.** Tasks write files under `staging`, with names that are unique per attempt,
and sync them to disk. The driver collects their receipts and commits:

1. *Look for a manifest of this key.* If there is one, an earlier run of this epoch passed the commit point. Its
   manifest stays valid, and the files that this run staged are deleted. The manifest has a digest of the epoch's input.
   If it is not the digest of this run, nothing is deleted and EpochMismatch is raised.
2. *Write the manifest* (temporary file, fsync, rename, fsync of the directory), or rename the promise to it. The rename
   is **the commit point**: before it nothing of the epoch is visible, after it all of it will be.
3. *Roll forward*: rename every staged file to the name in the manifest. A file that is no longer staged was renamed by
   an earlier run. The manifest fixes the names, so doing this twice is the same as doing it once.
4. *Clean up*: delete the staging directories of this and older epochs of the same instance (orphans of failed attempts)
   and the manifests before the previous epoch. Spark runs only the newest epoch again, so no older key comes back.

A **promise** is a manifest under another name. All sinks of a pipeline promise an epoch before the first of them
commits it. So if one sink has committed, the others can commit too, whatever happens in between: with a promise, no
task has to run again. The first promise of an epoch stays valid; only `discard` takes it back.

After a crash at any point the same epoch is run again and begins with step 1. A file is renamed only when it is
complete, so a reader never sees half a file. The readers of Spark, pyarrow and pandas ignore names that start with `_`,
and `.staged` matches no pattern that readers use.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.base.durable import fsync, private_directory, write_atomic
from headrace.base.faults import fault_point
from headrace.base.options import option, text
from headrace.errors import EpochMismatch, SinkFailed, SinkUnavailable, StateDamaged, UnwritablePath
from headrace.sinks.sink_kind import SinkKey, SinkSettings, Staged

GUARANTEE = "exactly once per epoch"
_MANIFEST_VERSION = 1
# Earlier versions wrote no `digest` and no `crc`. No other field is known, so that a damaged name is noticed.
_FIELDS = {"version", "checkpoint", "sink", "instance", "epoch", "digest", "rows", "files", "crc"}
# A staging directory, a manifest, or the temporary file that a crash left instead of a manifest.
_TAG = re.compile(r"\.?(?P<writer>[0-9a-f]{16})-(?P<instance>\d+)-(?P<epoch>\d+)(?:\.(?:json|promise)(?:\.\w+)?)?")

# A full disk, or a network file system that does not answer: errors that may go away by themselves. Wrong permissions,
# or a path that is not a directory, do not: a person must correct them, and the other pipelines do not wait for that.
_PASSING = {errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN}

Write = Callable[[pa.Table, Path], None]


@dataclass(frozen=True, slots=True)
class SinkPaths:
    """The paths of one sink's files."""

    root: Path
    sink: str

    @property
    def staging(self) -> Path:
        return self.root / "_headrace" / "staging"

    @property
    def manifests(self) -> Path:
        return self.root / "_headrace" / "manifests"

    def writer(self, key: SinkKey) -> str:
        """Sixteen hexadecimal digits for (checkpoint, sink), which are safe in a file name."""
        return hashlib.sha256(f"{key.checkpoint}\0{self.sink}".encode()).hexdigest()[:16]

    def tag(self, key: SinkKey) -> str:
        """The name of an epoch's staging directory and manifest."""
        return f"{self.writer(key)}-{key.instance}-{key.epoch}"

    def manifest(self, key: SinkKey) -> Path:
        return self.manifests / f"{self.tag(key)}.json"

    def promise(self, key: SinkKey) -> Path:
        return self.manifests / f"{self.tag(key)}.promise"

    def final(self, key: SinkKey, k: int, extension: str) -> str:
        """The visible name of the epoch's `k`th file."""
        return f"part-{self.writer(key)}-{key.instance}-{key.epoch:08}-{k}.{extension}"


class FileTask:
    """The task side: each call stages one durable file."""

    def __init__(self, root: Path, sink: str, write: Write, private: bool = False) -> None:
        """With `private` only the owner can read what is staged."""
        self.paths = SinkPaths(root, sink)
        self._write, self._private = write, private

    def stage(self, table: pa.Table, key: SinkKey) -> Staged:
        name = f"{self.paths.tag(key)}/{uuid.uuid4().hex}.staged"
        path = self.paths.staging / name
        with _writing(self.paths):
            private_directory(path.parent) if self._private else path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._write(table, path)
                if self._private:
                    path.chmod(0o600)
                fsync(path)
            except BaseException:
                with contextlib.suppress(OSError):  # half a file must not use the disk space that the stream waits for
                    path.unlink(missing_ok=True)
                raise
        return Staged(table.num_rows, file=name)


class FileSink:
    """The driver side; the module docstring describes the protocol. One thread at a time may use it; other hubs may use
    the same directory."""

    guarantee = GUARANTEE
    private = False  # True: only the owner can read manifests

    def __init__(self, root: Path, sink: str, extension: str) -> None:
        self.paths = SinkPaths(root, sink)
        self._extension = extension

    def promise(self, key: SinkKey, staged: list[Staged]) -> None:
        with _writing(self.paths):
            if not self.committed(key) and not self.paths.promise(key).exists():
                self._write_manifest(self.paths.promise(key), key, staged)

    def commit(self, key: SinkKey, staged: list[Staged]) -> int:
        with _writing(self.paths):
            manifest = self._read_manifest(self.paths.manifest(key), key) or self._commit_promise(key)
            if manifest is None:
                if not staged:
                    self._clean_up(key)
                    return 0
                manifest = self._write_manifest(self.paths.manifest(key), key, staged)
                fault_point("between-manifest-and-rename")
            self._roll_forward(key, manifest["files"], int(manifest["rows"]))
            self._clean_up(key)
            return int(manifest["rows"])

    def committed(self, key: SinkKey) -> bool:
        with _writing(self.paths):
            return self.paths.manifest(key).exists()

    def verify(self, key: SinkKey) -> None:
        for path in (self.paths.manifest(key), self.paths.promise(key)):
            with contextlib.suppress(OSError, StateDamaged):  # the commit reports what cannot be read
                self._read_manifest(path, key)

    def discard(self, key: SinkKey) -> None:
        with _writing(self.paths):
            if self.committed(key):
                self.commit(key, [])
            else:
                self.paths.promise(key).unlink(missing_ok=True)
                self._clean_up(key)

    def ahead(self, key: SinkKey) -> int:
        with _writing(self.paths):
            return len(self._later(key))

    def rewind(self, key: SinkKey) -> None:
        """Deletes staged files first and manifests last. So `ahead` finds anything that a later commit could mistake
        for its own, even if the process is killed half way."""
        with _writing(self.paths):
            for path, epoch in self._of_instance(self.paths.staging, key):
                if epoch > key.epoch:
                    _remove_directory(path)
            for path in self._later(key):
                path.unlink(missing_ok=True)
                fault_point("rewind-between-files")
            for directory in (self.paths.root, self.paths.manifests):
                if directory.exists():
                    fsync(directory)

    def forget(self, key: SinkKey) -> None:
        with _writing(self.paths):
            for directory in (self.paths.staging, self.paths.manifests):
                for path, epoch in self._of_instance(directory, key):
                    if epoch <= key.epoch:
                        _remove_directory(path) if path.is_dir() else path.unlink(missing_ok=True)

    def _later(self, key: SinkKey) -> list[Path]:
        """The files of later epochs: visible files, then promises and manifests, whose files may not be visible."""
        begin = f"part-{self.paths.writer(key)}-{key.instance}-"
        names = sorted(os.listdir(self.paths.root)) if self.paths.root.exists() else []
        shown = [(name, name.removeprefix(begin).partition("-")[0]) for name in names if name.startswith(begin)]
        later = [self.paths.root / name for name, epoch in shown if epoch.isdigit() and int(epoch) > key.epoch]
        known = self._of_instance(self.paths.manifests, key)
        return later + sorted(path for path, epoch in known if epoch > key.epoch)

    def close(self) -> None:
        """Nothing to release. Committed files stay."""

    def _commit_promise(self, key: SinkKey) -> dict[str, Any] | None:
        """Commit a promised epoch: rename its promise to its manifest. None if nothing was promised."""
        manifest = self._read_manifest(self.paths.promise(key), key)
        if manifest is not None:
            os.rename(self.paths.promise(key), self.paths.manifest(key))
            fsync(self.paths.manifests)
            fault_point("between-manifest-and-rename")
        return manifest

    def _read_manifest(self, path: Path, key: SinkKey) -> dict[str, Any] | None:
        """The manifest or promise at `path`; None if there is none. Raises EpochMismatch unless it belongs to `key`."""
        try:
            manifest: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError as problem:
            raise damaged(path, "it is not JSON") from problem
        version = manifest.get("version") if isinstance(manifest, dict) else None
        if version != _MANIFEST_VERSION:
            raise damaged(path, f"its version is {version}, not {_MANIFEST_VERSION}")
        if not manifest.keys() >= {"checkpoint", "sink", "rows", "files"}:
            raise damaged(path, "it lacks fields that a manifest has")
        if manifest.keys() - _FIELDS or manifest.get("crc", _checksum(manifest)) != _checksum(manifest):
            raise damaged(path, "it does not match its checksum")
        if (manifest["checkpoint"], manifest["sink"]) != (key.checkpoint, self.paths.sink):
            raise damaged(path, "it belongs to another checkpoint or sink")
        if key.digest and manifest.get("digest", "") not in ("", key.digest):  # older versions wrote no digest
            raise self._mismatch(key, path)
        return manifest

    def _mismatch(self, key: SinkKey, path: Path) -> EpochMismatch:
        return EpochMismatch(
            f"sink {self.paths.sink} has committed or promised epoch {key.epoch} with other input: {path}",
            advice="Nothing was overwritten. Spark's checkpoint and the sink do not match: the checkpoint was partly "
            "lost or replaced by hand, or another hub writes under the same name. Restore a savepoint with --rewind, "
            "or drop the stream and create it again.",
            sink=self.paths.sink,
            epoch=key.epoch,
            path=str(path),
        )

    def _write_manifest(self, path: Path, key: SinkKey, staged: list[Staged]) -> dict[str, Any]:
        manifest: dict[str, Any] = {
            "version": _MANIFEST_VERSION,
            "checkpoint": key.checkpoint,
            "sink": self.paths.sink,
            "instance": key.instance,
            "epoch": key.epoch,
            "digest": key.digest,
            "rows": sum(s.rows for s in staged),
            "files": {s.file: self.paths.final(key, k, self._extension) for k, s in enumerate(staged)},
        }
        for final in manifest["files"].values():
            # Old manifests are deleted, their files are not: this epoch was committed long ago.
            if (self.paths.root / final).exists():
                raise self._mismatch(key, self.paths.root / final)
        manifests = self.paths.manifests
        private_directory(manifests) if self.private else manifests.mkdir(parents=True, exist_ok=True)
        fsync(self.paths.staging / self.paths.tag(key))
        write_atomic(path, json.dumps({**manifest, "crc": _checksum(manifest)}).encode())
        return manifest

    def _roll_forward(self, key: SinkKey, files: Mapping[str, str], rows: int) -> None:
        """Make the committed files visible. Doing it twice is the same as doing it once."""
        for staged, final in files.items():
            try:
                os.rename(self.paths.staging / staged, self.paths.root / final)
            except FileNotFoundError:
                if not (self.paths.root / final).exists():
                    raise damaged(
                        self.paths.manifest(key), f"{final} was committed and is neither staged nor in place"
                    ) from None
            fault_point("between-renames")
        fsync(self.paths.root)

    def _clean_up(self, key: SinkKey) -> None:
        for path, epoch in self._of_instance(self.paths.staging, key):
            if epoch <= key.epoch:
                _remove_directory(path)
        for path, epoch in self._of_instance(self.paths.manifests, key):
            if epoch < key.epoch - 1 or path.name.startswith("."):
                path.unlink(missing_ok=True)

    def _of_instance(self, directory: Path, key: SinkKey) -> list[tuple[Path, int]]:
        """The entries of `directory` that belong to this writer and instance, with their epoch."""
        try:
            names = os.listdir(directory)
        except FileNotFoundError:
            return []
        matches = [m for m in map(_TAG.fullmatch, names) if m is not None]
        mine = (self.paths.writer(key), str(key.instance))
        return [(directory / m[0], int(m["epoch"])) for m in matches if (m["writer"], m["instance"]) == mine]


@dataclass(frozen=True, slots=True)
class FileSinkSettings(SinkSettings):
    """Options of every sink that writes files."""

    path: str = option(text, required=True, help="the directory to write to; it is created when needed")


def check_path(settings: FileSinkSettings) -> None:
    """Raise UnwritablePath unless the sink's directory can be written to. Changes nothing."""
    check_directory(settings.path)


def check_directory(name: str) -> None:
    """Raise UnwritablePath unless `name` is, or can become, a directory that this process may write to. Changes
    nothing."""
    path = Path(os.path.abspath(name))
    try:
        nearest = next(p for p in (path, *path.parents) if p.exists())
    except OSError as problem:  # such as a name that is too long
        raise UnwritablePath(
            f"{path} cannot be looked up: {problem.strerror}", advice="Name another path.", path=str(path)
        ) from None
    if not nearest.is_dir():
        raise UnwritablePath(
            f"{nearest} is not a directory", advice="Name a directory; it is created when needed.", path=str(path)
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UnwritablePath(
            f"{nearest} cannot be written to", advice="Allow writing there, or name another path.", path=str(path)
        )


@contextmanager
def _writing(paths: SinkPaths) -> Iterator[None]:
    """Turn an error of the file system into a coded error that names the sink."""
    try:
        yield
    except OSError as problem:
        said = f"sink {paths.sink} cannot write to {paths.root}: {problem.strerror or problem}"
        if problem.errno in _PASSING:
            raise SinkUnavailable(
                said,
                advice="Free disk space there, or restore the file system. The stream then continues by itself, and "
                "nothing is lost. STOP PIPELINE ... NOW or DROP PIPELINE lets the other pipelines continue without it.",
                sink=paths.sink,
                path=str(paths.root),
            ) from problem
        raise SinkFailed(
            said,
            advice="Check that the directory is writable and has free space, then start the pipeline again. It starts "
            "with the rows that arrive from then on.",
            sink=paths.sink,
            path=str(paths.root),
        ) from problem


def _checksum(manifest: Mapping[str, Any]) -> int:
    """The checksum of a manifest's fields, which is one of them itself."""
    covered = {name: value for name, value in manifest.items() if name != "crc"}
    return zlib.crc32(json.dumps(covered, sort_keys=True).encode())


def damaged(path: Path, reason: str) -> StateDamaged:
    """The error for a manifest that cannot be used."""
    return StateDamaged(
        f"the manifest {path} cannot be used: {reason}",
        advice="Files of the sink were changed or removed by hand. Restore them, or write to a new directory.",
        path=str(path),
    )


def _remove_directory(path: Path) -> None:
    """Delete a flat directory. If a task is still writing there, it stays until the next epoch deletes it."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(path):
            os.unlink(path / name)
        try:
            os.rmdir(path)
        except OSError as problem:
            if problem.errno != errno.ENOTEMPTY:
                raise
