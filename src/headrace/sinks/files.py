"""Sinks that write files into a directory, exactly once per epoch. A format only brings a `write` function.

    <path>/part-<writer>-<instance>-<epoch>-<k>.<ext>                     what readers see
    <path>/_headrace/staging/<writer>-<instance>-<epoch>/<uuid>.staged    what tasks write
    <path>/_headrace/manifests/<writer>-<instance>-<epoch>.promise        what the epoch will consist of, if it comes
    <path>/_headrace/manifests/<writer>-<instance>-<epoch>.json           what the epoch consists of

`writer` stands for (checkpoint, sink name), so pipelines, sinks and hubs may share a directory.

**The protocol, and why it is exactly once.** Tasks write attempt-unique files under `staging` and make them durable.
The driver collects their receipts and commits:

1. *Is there a manifest for this key?* Then an earlier run of this epoch got past the commit point. Its manifest stands,
   what this run staged is dropped. The manifest has a digest of the epoch's input: if it is not that of this run,
   nothing is dropped, and that is EpochMismatch.
2. *Write the manifest* (temporary file, fsync, rename, fsync of the directory), or rename the promise to it. The rename
   is **the commit point**: before it nothing of the epoch is visible, after it all of it will be.
3. *Roll forward*: rename every staged file to the name that the manifest gives it. A file that is no longer staged was
   renamed by an earlier run. The names are fixed by the manifest, so doing this twice is the same as once.
4. *Tidy*: remove the staging directories of this and older epochs of the same instance (orphans of failed attempts)
   and the manifests before the previous epoch. Spark runs only the newest epoch again, so no older key comes back.

A **promise** is a manifest under another name. The sinks of one pipeline all promise an epoch before the first of them
commits it, so that what one has committed the others can commit too, whatever happens in between: a promise needs no
task to be run again. The first promise of an epoch stands; only `discard` takes it back.

A crash anywhere leads to the same epoch being run again, which enters at 1. A file is renamed only when it is whole, so
a reader never sees half of one; names that start with `_` are not listed by the readers of Spark, pyarrow and pandas,
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.durable import fsync, write_atomic
from headrace.errors import EpochMismatch, SinkFailed, SinkUnavailable, StateDamaged, UnwritablePath
from headrace.faults import fault_point
from headrace.sinks.base import SinkKey, Staged

GUARANTEE = "exactly once per epoch"
_MANIFEST_VERSION = 1
# A staging directory, a manifest, or the temporary file that a crash left instead of a manifest.
_TAG = re.compile(r"\.?(?P<writer>[0-9a-f]{16})-(?P<instance>\d+)-(?P<epoch>\d+)(?:\.(?:json|promise)(?:\.\w+)?)?")

# No room, or a network file system that does not answer: what is likely to pass by itself. Wrong permissions, or a
# path that is no directory, are not: somebody has to correct them, and the neighbours need not wait for that.
_PASSING = {errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN}

Write = Callable[[pa.Table, Path], None]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the files of one sink lie."""

    root: Path
    sink: str

    @property
    def staging(self) -> Path:
        return self.root / "_headrace" / "staging"

    @property
    def manifests(self) -> Path:
        return self.root / "_headrace" / "manifests"

    def writer(self, key: SinkKey) -> str:
        """Sixteen digits for (checkpoint, sink): safe in a file name whatever the ids look like."""
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
    """Task side: one durable staged file per call."""

    def __init__(self, root: Path, sink: str, write: Write) -> None:
        self._layout = Layout(root, sink)
        self._write = write

    def stage(self, table: pa.Table, key: SinkKey) -> Staged:
        name = f"{self._layout.tag(key)}/{uuid.uuid4().hex}.staged"
        path = self._layout.staging / name
        with _writing(self._layout):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._write(table, path)
                fsync(path)
            except BaseException:
                with contextlib.suppress(OSError):  # half of a file must not take the room that is waited for
                    path.unlink(missing_ok=True)
                raise
        return Staged(table.num_rows, file=name)


class FileSink:
    """Driver side: see the module's text for the protocol. One thread at a time; other hubs may use the directory."""

    guarantee = GUARANTEE

    def __init__(self, root: Path, sink: str, extension: str) -> None:
        self._layout = Layout(root, sink)
        self._extension = extension

    def promise(self, key: SinkKey, staged: list[Staged]) -> None:
        with _writing(self._layout):
            if not self.committed(key) and not self._layout.promise(key).exists():
                self._write_manifest(self._layout.promise(key), key, staged)

    def commit(self, key: SinkKey, staged: list[Staged]) -> int:
        with _writing(self._layout):
            manifest = self._read_manifest(self._layout.manifest(key), key) or self._keep_promise(key)
            if manifest is None:
                if not staged:
                    self._tidy(key)
                    return 0
                manifest = self._write_manifest(self._layout.manifest(key), key, staged)
                fault_point("between-manifest-and-rename")
            self._roll_forward(key, manifest["files"])
            self._tidy(key)
            return int(manifest["rows"])

    def committed(self, key: SinkKey) -> bool:
        with _writing(self._layout):
            return self._layout.manifest(key).exists()

    def verify(self, key: SinkKey) -> None:
        for path in (self._layout.manifest(key), self._layout.promise(key)):
            with contextlib.suppress(OSError, StateDamaged):  # the commit says what cannot be read
                self._read_manifest(path, key)

    def discard(self, key: SinkKey) -> None:
        with _writing(self._layout):
            if self.committed(key):
                self.commit(key, [])
            else:
                self._layout.promise(key).unlink(missing_ok=True)
                self._tidy(key)

    def ahead(self, key: SinkKey) -> int:
        with _writing(self._layout):
            return len(self._later(key))

    def rewind(self, key: SinkKey) -> None:
        """Staged files go first and manifests last: as long as anything is left that a later commit could take for its
        own, `ahead` sees it, also when this is killed on the way."""
        with _writing(self._layout):
            for path, epoch in self._of_instance(self._layout.staging, key):
                if epoch > key.epoch:
                    _remove_directory(path)
            for path in self._later(key):
                path.unlink(missing_ok=True)
                fault_point("rewind-between-files")
            for directory in (self._layout.root, self._layout.manifests):
                if directory.exists():
                    fsync(directory)

    def forget(self, key: SinkKey) -> None:
        with _writing(self._layout):
            for directory in (self._layout.staging, self._layout.manifests):
                for path, epoch in self._of_instance(directory, key):
                    if epoch <= key.epoch:
                        _remove_directory(path) if path.is_dir() else path.unlink(missing_ok=True)

    def _later(self, key: SinkKey) -> list[Path]:
        """What there is of later epochs: visible files, then promises and manifests, whose files may not be visible
        yet, or not any more."""
        begin = f"part-{self._layout.writer(key)}-{key.instance}-"
        names = sorted(os.listdir(self._layout.root)) if self._layout.root.exists() else []
        shown = [(name, name.removeprefix(begin).partition("-")[0]) for name in names if name.startswith(begin)]
        later = [self._layout.root / name for name, epoch in shown if epoch.isdigit() and int(epoch) > key.epoch]
        known = self._of_instance(self._layout.manifests, key)
        return later + sorted(path for path, epoch in known if epoch > key.epoch)

    def close(self) -> None:
        """Nothing to release: committed files stay."""

    def _keep_promise(self, key: SinkKey) -> dict[str, Any] | None:
        """The commit point of an epoch that was promised."""
        manifest = self._read_manifest(self._layout.promise(key), key)
        if manifest is not None:
            os.rename(self._layout.promise(key), self._layout.manifest(key))
            fsync(self._layout.manifests)
            fault_point("between-manifest-and-rename")
        return manifest

    def _read_manifest(self, path: Path, key: SinkKey) -> dict[str, Any] | None:
        """The manifest or promise at `path`, which must be of the epoch that `key` names."""
        try:
            manifest: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError as problem:
            raise _damaged(path, "it is not JSON") from problem
        version = manifest.get("version") if isinstance(manifest, dict) else None
        if version != _MANIFEST_VERSION:
            raise _damaged(path, f"its version is {version}, not {_MANIFEST_VERSION}")
        if not manifest.keys() >= {"checkpoint", "sink", "rows", "files"}:
            raise _damaged(path, "it lacks what a manifest has")
        if (manifest["checkpoint"], manifest["sink"]) != (key.checkpoint, self._layout.sink):
            raise _damaged(path, "it belongs to another checkpoint or sink")
        if key.digest and manifest.get("digest", "") not in ("", key.digest):  # older versions wrote none
            raise self._mismatch(key, path)
        return manifest

    def _mismatch(self, key: SinkKey, path: Path) -> EpochMismatch:
        return EpochMismatch(
            f"sink {self._layout.sink} has committed or promised epoch {key.epoch} with other input: {path}",
            advice="Nothing was overwritten. Spark's checkpoint and the sink are not of one piece: the checkpoint was "
            "lost in part or put back by hand, or another hub writes under the same name. Restore a savepoint with "
            "--rewind, or drop the stream and create it again.",
            sink=self._layout.sink,
            epoch=key.epoch,
            path=str(path),
        )

    def _write_manifest(self, path: Path, key: SinkKey, staged: list[Staged]) -> dict[str, Any]:
        manifest: dict[str, Any] = {
            "version": _MANIFEST_VERSION,
            "checkpoint": key.checkpoint,
            "sink": self._layout.sink,
            "instance": key.instance,
            "epoch": key.epoch,
            "digest": key.digest,
            "rows": sum(s.rows for s in staged),
            "files": {s.file: self._layout.final(key, k, self._extension) for k, s in enumerate(staged)},
        }
        for final in manifest["files"].values():
            # Manifests are removed after a while, files are not: this epoch was committed long ago.
            if (self._layout.root / final).exists():
                raise self._mismatch(key, self._layout.root / final)
        self._layout.manifests.mkdir(parents=True, exist_ok=True)
        fsync(self._layout.staging / self._layout.tag(key))
        write_atomic(path, json.dumps(manifest).encode())
        return manifest

    def _roll_forward(self, key: SinkKey, files: Mapping[str, str]) -> None:
        for staged, final in files.items():
            try:
                os.rename(self._layout.staging / staged, self._layout.root / final)
            except FileNotFoundError:
                if not (self._layout.root / final).exists():
                    raise _damaged(
                        self._layout.manifest(key), f"{final} was committed and is neither staged nor in place"
                    ) from None
            fault_point("between-renames")
        fsync(self._layout.root)

    def _tidy(self, key: SinkKey) -> None:
        for path, epoch in self._of_instance(self._layout.staging, key):
            if epoch <= key.epoch:
                _remove_directory(path)
        for path, epoch in self._of_instance(self._layout.manifests, key):
            if epoch < key.epoch - 1 or path.name.startswith("."):
                path.unlink(missing_ok=True)

    def _of_instance(self, directory: Path, key: SinkKey) -> list[tuple[Path, int]]:
        """The entries of `directory` that belong to this writer and instance, with their epoch."""
        try:
            names = os.listdir(directory)
        except FileNotFoundError:
            return []
        matches = [m for m in map(_TAG.fullmatch, names) if m is not None]
        mine = (self._layout.writer(key), str(key.instance))
        return [(directory / m[0], int(m["epoch"])) for m in matches if (m["writer"], m["instance"]) == mine]


def check_directory(values: Mapping[str, Any]) -> None:
    """Whether the `path` among the options is, or can become, a directory that we may write to. Changes nothing."""
    path = Path(os.path.abspath(values["path"]))
    nearest = next(p for p in (path, *path.parents) if p.exists())
    if not nearest.is_dir():
        raise UnwritablePath(
            f"{nearest} is not a directory", advice="Name a directory; it is made when needed.", path=str(path)
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UnwritablePath(
            f"{nearest} cannot be written to", advice="Allow writing there or name another path.", path=str(path)
        )


@contextmanager
def _writing(layout: Layout) -> Iterator[None]:
    """Turn what the file system says into a coded error that names the sink."""
    try:
        yield
    except OSError as problem:
        said = f"sink {layout.sink} cannot write to {layout.root}: {problem.strerror or problem}"
        if problem.errno in _PASSING:
            raise SinkUnavailable(
                said,
                advice="Make room there, or bring the file system back: the stream goes on by itself, and nothing is "
                "lost. STOP PIPELINE ... NOW or DROP PIPELINE lets the other pipelines go on without this one.",
                sink=layout.sink,
                path=str(layout.root),
            ) from problem
        raise SinkFailed(
            said,
            advice="Check that the directory may be written to and has space, then start the pipeline again: "
            "it begins anew with what comes then.",
            sink=layout.sink,
            path=str(layout.root),
        ) from problem


def _damaged(path: Path, reason: str) -> StateDamaged:
    return StateDamaged(
        f"the manifest {path} cannot be used: {reason}",
        advice="Somebody changed or removed files of the sink by hand; restore them, or write to a new directory.",
        path=str(path),
    )


def _remove_directory(path: Path) -> None:
    """Remove a flat directory. A task that is still writing there keeps it; the next epoch removes it then."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(path):
            os.unlink(path / name)
        try:
            os.rmdir(path)
        except OSError as problem:
            if problem.errno != errno.ENOTEMPTY:
                raise
