"""The state directory of a hub: everything that must survive a restart. It has one owner process at a time.

    VERSION                         the format of this directory
    lock                            held by the owner; names its process and its JVM
    catalog.json                    streams, sinks, pipelines (`headrace.state.catalog`)
    catalog.previous.json           the catalog before its newest change
    secrets.json                    tokens and passwords, by name (`headrace.state.secrets`)
    hub.log, hub.log.N              what the hub logged, newest first (`headrace.base.logs`)
    spark.log, spark.log.N          Spark's warnings and errors since it was last started, and of the runs before
    spark.err, spark.err.1          what Spark's processes wrote to standard error, in this run and in the one before
    gateway.log                     errors of the process that receives pushed streams
    hub.sock                        the Unix socket on which the owner serves clients
    streams/<name>/                 one stream: plans/, progress.json, applied.json, signals.json, source/, checkpoint/
    savepoints/<name>/              a copy of streams (`headrace.state.savepoints`)

It may be on any path that all machines mount. Only the owner and its planning processes write here, and, if all run on
one machine, tasks (`headrace.bridge.packs`, `headrace.bridge.spark_rows`). Directories have mode 0700 and files 0600.
Spark's files below `checkpoint` have the modes that Spark gives them, inside a directory that only the owner can enter.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from urllib.parse import quote

from headrace.base.durable import durable_directory, state_errors, write_atomic
from headrace.bridge.spark_rows import clear_staging
from headrace.errors import BadOption, ExternalError, StateDamaged, StateInUse, StateTooNew, UnwritablePath
from headrace.state.checkpoint import CHECKPOINT, misplaced, relocate, settle_checkpoint
from headrace.state.dedicated_state import DEDICATED

# 2: tokens are in secrets.json, and the catalog names them.
# 3: pools may be spread over Spark's partitions (`PipelineDef.spread`). Releases that do not know such pools would look
# for their state in others, and never close their windows. Stored rows of one window may have its bounds only once.
FORMAT = 3
SAVEPOINTS = "savepoints"
SOCKET_NAME = "hub.sock"  # the Unix socket on which the owner serves clients
STREAMS = "streams"
# The hub writes a file of this name into a stream's directory before it removes the stream from the catalog.
DROPPED = "dropped"
_GONE, _UNCLAIMED = ".gone-", ".unclaimed-"
_log = logging.getLogger(__name__)
_ON_STORE = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)  # a Path has one of the two slashes of a URL
JVM_GRACE_SECONDS = 30.0
MAX_COMPONENT = 200  # most file systems allow 255 bytes, and encrypted ones less


class StateDir:
    """An open state directory. From `open` to `close` no other process can open it."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @staticmethod
    def open(path: Path, sleep: Callable[[float], None] = time.sleep) -> StateDir:
        """Take ownership. If the JVM of a killed owner is still alive, it may still write: waits for its end, and
        raises StateInUse if that takes too long."""
        if _ON_STORE.match(str(path)):
            raise UnwritablePath(
                f"the state directory {path} cannot be on an object store",
                advice="Name a directory of a local or mounted file system with --state-dir: locks, logs that grow and "
                "Spark's checkpoint need one. Streams and sinks may be on object stores.",
                path=str(path),
            )
        try:
            durable_directory(path.parent)
            durable_directory(path, 0o700)
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise UnwritablePath(
                f"the state directory {path} cannot be used: {problem.strerror or problem}",
                advice="Name a directory that you may write to with --state-dir.",
                path=str(path),
            ) from problem
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = _read_owner(lock)
            os.close(lock)
            raise _in_use(path, owner.get("pid")) from None
        try:
            _await_jvm(path, _read_owner(lock), sleep)
            with state_errors(path):
                require_known_format(path)
                write_version(path)
                tighten(path)
                state = StateDir(path, lock)
                state.record_owner(jvm=None)
        except BaseException:
            os.close(lock)
            raise
        return state

    def record_owner(self, jvm: int | None) -> None:
        """Record this process as the owner. `jvm` is the pid of the Spark driver, if there is one."""
        owner = {"pid": os.getpid(), "started": _started(os.getpid())}
        if jvm is not None:
            owner |= {"jvm": jvm, "jvm_started": _started(jvm)}
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, json.dumps(owner).encode(), 0)
        os.fsync(self._lock)

    def stream(self, name: str) -> Path:
        """The directory of one stream."""
        return stream_directory(self.path, name)

    def sweep(self, streams: Collection[str]) -> None:
        """Delete the leftovers of dropped streams and unfinished savepoints, whose removal or copy a crash interrupted.
        `streams` are the declared streams; their checkpoints are moved to their right location.

        A directory whose stream is neither declared nor marked as dropped is renamed and kept: the catalog may be an
        old copy that a user restored.
        """
        known = {self.stream(name) for name in streams}
        for own in known:
            with contextlib.suppress(OSError, ExternalError):  # the stream reports the problem when it starts
                clear_staging(own)
                settle_checkpoint(own)
                for checkpoint in own.glob(f"{DEDICATED}/*/*/{CHECKPOINT}"):
                    relocate(checkpoint, checkpoint)
        kept = known | {misplaced(own / CHECKPOINT).parent for own in known}
        directory = self.path / STREAMS
        for entry in list(directory.iterdir()) if directory.exists() else []:
            if entry in kept:
                (entry / DROPPED).unlink(
                    missing_ok=True
                )  # the catalog still has the stream, so the drop did not happen
            elif entry.name.startswith(_GONE) or (entry / DROPPED).exists():
                shutil.rmtree(entry, ignore_errors=True)
            elif not entry.name.startswith(_UNCLAIMED):
                aside = entry.with_name(f"{_UNCLAIMED}{entry.name[:MAX_COMPONENT]}-{uuid.uuid4().hex[:8]}")
                entry.rename(aside)
                _log.warning("%s belongs to no declared stream; it is renamed to %s and kept", entry, aside.name)
        for half in (self.path / SAVEPOINTS).glob(".*"):
            shutil.rmtree(half, ignore_errors=True)

    def close(self) -> None:
        """Give up ownership. The directory stays."""
        if self._lock >= 0:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = -1


def stream_directory(root: Path, name: str) -> Path:
    """The directory of a stream below the state directory `root`."""
    return root / STREAMS / directory_name(name)


def directory_name(name: str) -> str:
    """The name of a stream's directory. A quoted name may contain any character, so characters with a meaning in paths
    are written as %XX: no name leads out of the state directory. A result that is too long for a file system is
    truncated and gets a digest."""
    written = re.sub(r"^\.", "%2E", quote(name, safe=" "))
    if len(written) > MAX_COMPONENT:
        written = f"{written[: MAX_COMPONENT - 33]}~{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return written


def require_savepoint_name(name: str) -> str:
    """`name`, if it is valid for a savepoint, which is a directory. Raises BadOption."""
    if re.fullmatch(r"\w[\w.-]*", name) is None or len(os.fsencode(name)) > MAX_COMPONENT:
        raise BadOption(
            f"a savepoint cannot be called {name!r}",
            advice="It becomes the name of a directory: use letters, digits, '_', '-' and '.', at most 200 bytes.",
            option="name",
            value=name,
        )
    return name


def tighten(root: Path) -> None:
    """Restrict everything below `root` to its owner. Logs a warning if that changes anything."""
    changed: list[Path] = []
    for place, directories, files in os.walk(root):
        if Path(place).name == CHECKPOINT:  # Spark's own files, inside a private directory
            directories.clear()
            files.clear()
        for path in (Path(place), *(Path(place) / name for name in files)):
            try:
                mode = path.lstat().st_mode
                if mode & 0o077 and not stat.S_ISLNK(mode):
                    path.chmod(stat.S_IMODE(mode) & 0o700)
                    changed.append(path)
            except OSError as problem:
                _log.warning("the permissions of %s cannot be changed: %s", path, problem)
    if changed:
        _log.warning("others could read %d files and directories in %s; now only their owner can", len(changed), root)


def _in_use(path: Path, pid: object) -> StateInUse:
    return StateInUse(
        f"the state directory {path} is in use" + (f" by process {pid}" if pid else ""),
        advice="To reach that hub, use headrace sql, headrace status or headrace top with the same --state-dir, or "
        f"headrace.connect({str(path / SOCKET_NAME)!r}) in Python. Or stop that process, or name another directory.",
        path=str(path),
        pid=pid,
    )


def _read_owner(lock: int) -> dict[str, int]:
    with contextlib.suppress(ValueError):  # a killed owner may have left half a line
        owner = json.loads(os.pread(lock, 4096, 0) or b"{}")
        if isinstance(owner, dict):
            return owner
    return {}


def _started(pid: int) -> int | None:
    """The start time of a process, to recognize a reused pid. None if the process is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _await_jvm(path: Path, owner: dict[str, int], sleep: Callable[[float], None]) -> None:
    jvm = owner.get("jvm")
    waited = 0.0
    while jvm is not None and _started(jvm) is not None and _started(jvm) == owner.get("jvm_started"):
        if waited >= JVM_GRACE_SECONDS:
            raise StateInUse(
                f"Spark of a hub that was killed still runs on the state directory {path}, as process {jvm}",
                advice="Wait until it ends, or kill it. Or name another directory.",
                path=str(path),
                pid=jvm,
            )
        sleep(0.1)
        waited += 0.1


def write_version(path: Path) -> None:
    """Write the format version of a state directory."""
    file = path / "VERSION"
    if not file.exists() or file.read_bytes().strip() != str(FORMAT).encode():
        write_atomic(file, f"{FORMAT}\n".encode())


def require_known_format(path: Path) -> None:
    """Raise StateTooNew or StateDamaged unless the directory has a known format or none yet, and UnwritablePath if it
    is a file. Only reads the disk."""
    if path.exists() and not path.is_dir():
        raise UnwritablePath(
            f"the state directory {path} cannot be used: it is a file",
            advice="Name a directory with --state-dir. It is created if it does not exist.",
            path=str(path),
        )
    file = path / "VERSION"
    if not file.exists():
        return
    text = file.read_bytes().strip()
    if not text.isdigit():
        raise StateDamaged(f"{file} does not hold a version", path=str(file))
    if int(text) > FORMAT:
        raise StateTooNew(
            f"the state directory {path} has format {int(text)}; this version of headrace reads formats up to {FORMAT}",
            advice="Use a newer headrace, or name another directory with --state-dir.",
            path=str(path),
            version=int(text),
        )
