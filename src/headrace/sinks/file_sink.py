"""Sinks that write files into a directory, exactly once per epoch. A file format only adds a `write` function.

    <path>/part-<writer>-<instance>-<epoch>-<k>.<ext>                     visible files
    <path>/_headrace/staging/<writer>-<instance>-<epoch>/<uuid>.staged    files that tasks stage
    <path>/_headrace/manifests/<writer>-<instance>-<epoch>.promise        the files of a promised epoch
    <path>/_headrace/manifests/<writer>-<instance>-<epoch>.json           the files of a committed epoch
    <path>/_headrace/owners/<writer>.json                                 the hub that may write, after a restore

With `roll_size` or `roll_age`, `headrace.sinks.rolling` joins the files of several epochs before they become visible.

`<path>` is a directory, or a prefix of an object store (`headrace.sinks.outputs`).

A manifest has a checksum. One that does not match it is StateDamaged with its path, and nothing is renamed or deleted.

`writer` identifies (checkpoint, sink name), so pipelines, sinks and hubs may share a directory.

**The protocol, and why it is exactly once.** Tasks write files under `staging`, with names that are unique per attempt,
and sync their content to disk. The driver collects their receipts and commits:

1. *Look for a manifest of this key.* If there is one, an earlier run of this epoch passed the commit point. Its
   manifest stays valid, and the files that this run staged are deleted. The manifest has a digest of the epoch's input.
   If it is not the digest of this run, nothing is deleted and EpochMismatch is raised.
2. *Sync the names* of the staged files and of their directory, and *write the manifest* (temporary file, fsync, rename,
   fsync of the directory). Or rename the promise to it. The rename is **the commit point**: before it nothing of the
   epoch is visible, after it all of it will be. On an object store the put of the manifest is the commit point: a put
   is atomic.
3. *Roll forward*: rename every staged file to the name in the manifest. A file that is no longer staged was renamed by
   an earlier run. The manifest fixes the names, so doing this twice is the same as doing it once. On an object store
   every staged object is copied, on the server. A copy is atomic, and a repeated one changes nothing.
4. *Clean up*: delete the staging directories of this and older epochs of the same instance (orphans of failed attempts)
   and the manifests before the previous epoch. Spark runs only the newest epoch again, so no older key comes back.

A **promise** is a manifest under another name. All sinks of a pipeline promise an epoch before the first of them
commits it. So if one sink has committed, the others can commit too, whatever happens in between: with a promise, no
task has to run again. The first promise of an epoch stays valid; only `discard` takes it back.

After a crash at any point the same epoch is run again and begins with step 1. A file gets its visible name only when it
is complete, so a reader never sees half a file. The readers of Spark, pyarrow and pandas ignore names that start with
`_`, and `.staged` matches no pattern that readers use.
"""

from __future__ import annotations

import contextlib
import json
import re
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.base.faults import fault_point
from headrace.errors import EpochMismatch, StateDamaged
from headrace.sinks.outputs import FileOutput, LocalOutput
from headrace.sinks.owner_mark import OwnerMark
from headrace.sinks.partitions import by_partition, directory_of
from headrace.sinks.sink_kind import Checkpoints, SinkKey, SinkWriter, Staged
from headrace.sinks.sink_paths import MANIFESTS, STAGING, STORE_ERRORS, SinkPaths, writing

GUARANTEE = "exactly once per epoch"
_MANIFEST_VERSION = 1
# Earlier versions wrote no `digest` and no `crc`. Any other field is an error, so that a damaged field name is
# detected.
_FIELDS = {"version", "checkpoint", "sink", "instance", "epoch", "digest", "rows", "files", "crc"}
# A staging directory, a manifest, or the temporary file that a crash left instead of a manifest.
_TAG = re.compile(r"\.?(?P<writer>[0-9a-f]{16})-(?P<instance>\d+)-(?P<epoch>\d+)(?:\.(?:json|promise)(?:\.\w+)?)?")
_VISIBLE = re.compile(r"part-(?P<writer>[0-9a-f]{16})-(?P<instance>\d+)-\d+-")

Write = Callable[[pa.Table, Path], None]
_IN = "\t"  # between a staged file and the directory of its partition


class FileTask:
    """The task side: each call stages one durable file for each partition. The receipt names one on each line, with the
    directory of its partition."""

    def __init__(
        self,
        root: Path | FileOutput,
        sink: str,
        write: Write,
        private: bool = False,
        partition_by: Sequence[str] = (),
    ) -> None:
        """With `private` only the owner can read what is staged."""
        self.paths = SinkPaths(output(root), sink)
        self._write, self._private, self._partition_by = write, private, tuple(partition_by)

    def stage(self, table: pa.Table, key: SinkKey) -> Staged:
        parts = []
        for values, rows in by_partition(table, self._partition_by):
            directory = directory_of(self._partition_by, values)
            parts.append(f"{self._stage(rows, key)}{_IN}{directory}" if directory else self._stage(rows, key))
        return Staged(table.num_rows, file="\n".join(parts))

    def _stage(self, table: pa.Table, key: SinkKey) -> str:
        name = f"{self.paths.tag(key)}/{uuid.uuid4().hex}.staged"
        with writing(self.paths):
            self.paths.output.stage(f"{STAGING}/{name}", lambda path: self._write(table, path), self._private)
        return name


def output(root: Path | FileOutput) -> FileOutput:
    """The place of files; a path is a directory."""
    return LocalOutput(root) if isinstance(root, Path) else root


class FileSink:
    """The driver side; the module docstring describes the protocol. One thread at a time may use it; other hubs may use
    the same directory."""

    guarantee = GUARANTEE
    private = False  # True: only the owner can read manifests

    def __init__(self, root: Path | FileOutput, sink: str, extension: str) -> None:
        self.output = output(root)
        self.paths = SinkPaths(self.output, sink)
        self._extension = extension
        self.steps = 0  # grows while an epoch is made visible
        self._home = ""  # the directory where committed files are put, with a slash at its end

    def promise(self, key: SinkKey, staged: list[Staged]) -> None:
        with writing(self.paths):
            if not self.committed(key) and not self.output.exists(self.paths.promise(key)):
                self._write_manifest(self.paths.promise(key), key, staged)

    def commit(self, key: SinkKey, staged: list[Staged]) -> int:
        with writing(self.paths):
            manifest = self._read_manifest(self.paths.manifest(key), key) or self._commit_promise(key)
            if manifest is None:
                if not staged:
                    if key.promised and not self._later(key):  # the manifest goes with the epochs after it
                        raise self._lost_promise(key)
                    self._clean_up(key)
                    return 0
                manifest = self._write_manifest(self.paths.manifest(key), key, staged)
                fault_point("between-manifest-and-rename")
            self._roll_forward(key, manifest["files"], int(manifest["rows"]))
            self._clean_up(key)
            return int(manifest["rows"])

    def committed(self, key: SinkKey) -> bool:
        with writing(self.paths):
            return self.output.exists(self.paths.manifest(key))

    def promised(self, key: SinkKey) -> bool:
        """True if there is a promise under this key."""
        with writing(self.paths):
            return self.output.exists(self.paths.promise(key))

    def verify(self, key: SinkKey) -> None:
        for path in (self.paths.manifest(key), self.paths.promise(key)):
            with contextlib.suppress(OSError, StateDamaged, *STORE_ERRORS):  # the commit reports what cannot be read
                self._read_manifest(path, key)

    def discard(self, key: SinkKey) -> None:
        with writing(self.paths):
            if self.committed(key):
                self.commit(key, [])
            else:
                self.output.delete(self.paths.promise(key))
                self._clean_up(key)

    def ahead(self, key: SinkKey) -> int:
        with writing(self.paths):
            return len(self._later(key))

    @property
    def owner_mark(self) -> OwnerMark | None:
        """Where the sink says which hub may write (`headrace.sinks.owner_mark`)."""
        return OwnerMark(self.paths)

    def writers(self, checkpoints: Checkpoints) -> set[SinkWriter]:
        """Those that visible files and manifests name; see `KnowsWriters`."""
        with writing(self.paths):
            names = [name.rpartition("/")[2] for name in self.output.below("", without="_headrace")]
            found = [*map(_VISIBLE.match, names), *map(_TAG.fullmatch, self.output.entries(MANIFESTS))]
        known = {(m["writer"], int(m["instance"])) for m in found if m is not None}
        return {(c, i) for writer, i in known for c in checkpoints(i) if writer == self.paths.writer(SinkKey(c, i, 0))}

    def rewind(self, key: SinkKey) -> None:
        """Deletes staged files first and manifests last. So `ahead` finds anything that a later commit could mistake
        for its own, even if the process is killed half way."""
        with writing(self.paths):
            for name, epoch in self._of_instance(STAGING, key):
                if epoch > key.epoch:
                    self.output.delete_directory(name)
            later = self._later(key)
            for name in later:
                self.output.delete(name)
                fault_point("rewind-between-files")
            self.output.settle([*later, f"{MANIFESTS}/any"], parents=True)

    def forget(self, key: SinkKey) -> None:
        with writing(self.paths):
            for name, epoch in self._of_instance(STAGING, key):
                if epoch <= key.epoch:
                    self.output.delete_directory(name)
            for name, epoch in self._of_instance(MANIFESTS, key):
                if epoch <= key.epoch:
                    self.output.delete(name)

    def _later(self, key: SinkKey) -> list[str]:
        """The files of later epochs: visible files, then promises and manifests, whose files may not be visible."""
        later = [name for name, epoch in self._shown(key) if epoch > key.epoch]
        known = self._of_instance(MANIFESTS, key)
        return later + sorted(name for name, epoch in known if epoch > key.epoch)

    def _shown(self, key: SinkKey) -> list[tuple[str, int]]:
        """The visible files of this writer and instance, including those in partitions, with their epoch."""
        begin = f"part-{self.paths.writer(key)}-{key.instance}-"
        found = []
        for name in self.output.below("", without="_headrace"):
            last = name.rpartition("/")[2]
            epoch = last.removeprefix(begin).partition("-")[0]
            if last.startswith(begin) and epoch.isdigit():
                found.append((name, int(epoch)))
        return sorted(found)

    def close(self) -> None:
        """Nothing to release. Committed files stay."""

    def _commit_promise(self, key: SinkKey) -> dict[str, Any] | None:
        """Commit a promised epoch: rename its promise to its manifest. None if nothing was promised."""
        manifest = self._read_manifest(self.paths.promise(key), key)
        if manifest is not None:
            self.output.move(self.paths.promise(key), self.paths.manifest(key))
            self.output.settle([self.paths.manifest(key)])
            fault_point("between-manifest-and-rename")
            self.output.delete(self.paths.promise(key))
        return manifest

    def _read_manifest(self, name: str, key: SinkKey) -> dict[str, Any] | None:
        """The manifest or promise `name`; None if there is none. Raises EpochMismatch unless it belongs to `key`."""
        path = self.paths.shown(name)
        try:
            manifest: dict[str, Any] = json.loads(self.output.read(name))
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

    def _mismatch(self, key: SinkKey, path: str) -> EpochMismatch:
        return EpochMismatch(
            f"sink {self.paths.sink} has committed or promised epoch {key.epoch} with other input: {path}",
            advice="Nothing was overwritten. Spark's checkpoint and the sink do not match: the checkpoint was partly "
            "lost or replaced by hand, or another hub writes under the same name. Restore a savepoint with --rewind, "
            "or drop the stream and create it again.",
            sink=self.paths.sink,
            epoch=key.epoch,
            path=path,
        )

    def _lost_promise(self, key: SinkKey) -> StateDamaged:
        path = self.paths.shown(self.paths.promise(key))
        return StateDamaged(
            f"sink {self.paths.sink} owes epoch {key.epoch}, and the promise {path} is missing",
            advice="Files of the sink were removed by hand. Restore them, with the files of the epoch in its staging "
            "directory. Or drop the pipeline and create it again: then the rows of this epoch are not in this sink.",
            path=path,
        )

    def _unexplained(self, key: SinkKey, path: str) -> EpochMismatch:
        return EpochMismatch(
            f"sink {self.paths.sink} already has a file of epoch {key.epoch}, {path}, and there is no manifest "
            f"{self.paths.shown(self.paths.manifest(key))}",
            advice="Nothing was overwritten. If the manifest was removed, restore it. Otherwise Spark's checkpoint was "
            "partly lost or replaced by hand, or another hub writes under the same name: restore a savepoint with "
            "--rewind, or drop the stream and create it again.",
            sink=self.paths.sink,
            epoch=key.epoch,
            path=path,
        )

    def _write_manifest(self, name: str, key: SinkKey, staged: list[Staged]) -> dict[str, Any]:
        manifest: dict[str, Any] = {
            "version": _MANIFEST_VERSION,
            "checkpoint": key.checkpoint,
            "sink": self.paths.sink,
            "instance": key.instance,
            "epoch": key.epoch,
            "digest": key.digest,
            "rows": sum(s.rows for s in staged),
            "files": self._finals(key, staged),
        }
        for final in manifest["files"].values():
            # Old manifests are deleted, their files are not: this epoch was committed long ago.
            if self._placed(key, final):
                raise self._unexplained(key, self.paths.shown(self._home + final))
        if staged:  # an attempt that died may have made their directory, so no task knows that its name is durable
            directory = f"{STAGING}/{self.paths.tag(key)}"
            self.output.settle([f"{directory}/any", directory])
        self.output.write(name, json.dumps({**manifest, "crc": _checksum(manifest)}).encode(), self.private)
        return manifest

    def _finals(self, key: SinkKey, staged: list[Staged]) -> dict[str, str]:
        """The visible name of each staged file."""
        finals = {}
        for k, line in enumerate(line for receipt in staged for line in receipt.file.split("\n")):
            name, _, directory = line.partition(_IN)
            final = self.paths.final(key, k, self._extension)
            finals[name] = f"{directory}/{final}" if directory else final
        return finals

    def _roll_forward(self, key: SinkKey, files: Mapping[str, str], rows: int) -> None:
        """Make the committed files visible. Doing it twice is the same as doing it once."""
        for staged, final in files.items():
            try:
                self.output.move(f"{STAGING}/{staged}", self._home + final)
            except FileNotFoundError:
                if not self._placed(key, final):
                    raise damaged(
                        self.paths.shown(self.paths.manifest(key)),
                        f"{final} was committed and is neither staged nor in place",
                    ) from None
            self.steps += 1
            fault_point("between-renames")
        self.output.settle([self._home + final for final in files.values()], parents=True)

    def _placed(self, key: SinkKey, final: str) -> bool:
        """True if a committed file has left its staging directory."""
        return self.output.exists(self._home + final)

    def _clean_up(self, key: SinkKey) -> None:
        for name, epoch in self._of_instance(STAGING, key):
            if epoch <= key.epoch:
                self.output.delete_directory(name)
        for name, epoch in self._of_instance(MANIFESTS, key):
            if epoch < key.epoch - 1 or name.rpartition("/")[2].startswith("."):
                self.output.delete(name)

    def _of_instance(self, directory: str, key: SinkKey) -> list[tuple[str, int]]:
        """The entries of `directory` that belong to this writer and instance, with their epoch."""
        matches = [m for m in map(_TAG.fullmatch, self.output.entries(directory)) if m is not None]
        mine = (self.paths.writer(key), str(key.instance))
        return [(f"{directory}/{m[0]}", int(m["epoch"])) for m in matches if (m["writer"], m["instance"]) == mine]


def _checksum(manifest: Mapping[str, Any]) -> int:
    """The checksum of a manifest's fields, which is one of them itself."""
    covered = {name: value for name, value in manifest.items() if name != "crc"}
    return zlib.crc32(json.dumps(covered, sort_keys=True).encode())


def damaged(path: str, reason: str) -> StateDamaged:
    """The error for a manifest that cannot be used."""
    return StateDamaged(
        f"the manifest {path} cannot be used: {reason}",
        advice="Files of the sink were changed or removed by hand. Restore them, or write to a new directory.",
        path=path,
    )
