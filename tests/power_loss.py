"""Power losses without a machine: what a directory may look like after one.

`Disk` records a directory while code under test writes to it. A *moment* is its state before or after a system call
that syncs, renames, deletes or writes. `after_power_loss` builds a directory as a file system may leave it if the power
fails at that moment. Only this is certain, as POSIX has it:

- the content of a file as of its last fsync;
- the names in a directory as of the last fsync of the directory.

Of everything later any part may be missing: bytes at the end of a file, or zeros instead of them; some of the bytes
that were overwritten; new names, renames and deletions, each by itself. So a file whose directory was never synced may
be gone, although the file was.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

# Before these calls the tree is noted, because they change names or content.
_CHANGES = ("rename", "replace", "unlink", "remove", "rmdir", "truncate", "ftruncate", "pwrite", "mkdir")


@dataclass(frozen=True, slots=True)
class Tree:
    """Directories and files by inode. A name leads to an inode."""

    names: dict[int, dict[str, int]] = field(default_factory=dict)
    content: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moment:
    """A state of the directory: `now` as programs see it, `synced` what is certain. `known` are all directories and
    files that there ever were. `facts` is what the test notes about this moment."""

    now: Tree
    synced: Tree
    known: Tree
    facts: Any


class Disk:
    """Records `root`; see the module. `facts` is asked at every moment."""

    def __init__(self, root: Path, facts: Callable[[], Any] = lambda: None) -> None:
        self.root, self.facts = root, facts
        self.moments: list[Moment] = []
        self._real_fstat, self._root = os.fstat, os.stat(root).st_ino
        self._known, self._synced = Tree(), Tree()
        self._recording = False
        self._read: dict[tuple[int, int, int], bytes] = {}
        self._look()
        self._synced = self._copy(self._known)  # what is there before is certain

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record what this process does, in all threads."""
        with pytest.MonkeyPatch.context() as patch:
            for name in _CHANGES:
                patch.setattr(os, name, self._noted(getattr(os, name)))
            for name in ("fsync", "fdatasync"):
                patch.setattr(os, name, self._syncing(getattr(os, name)))
            self._recording = True
            try:
                yield
                self.note()
            finally:
                self._recording = False

    def note(self) -> None:
        """Note the state of the directory as a moment."""
        now = self._look()
        self.moments.append(Moment(now, self._copy(self._synced), self._copy(self._known), self.facts()))

    def _noted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*args: Any, **kwargs: Any) -> Any:
            if self._recording:
                self.note()
            return call(*args, **kwargs)

        return noting

    def _syncing(self, call: Callable[[int], None]) -> Callable[[int], None]:
        def syncing(handle: int) -> None:
            if self._recording:
                self.note()
            call(handle)
            inode = self._real_fstat(handle).st_ino
            if not self._recording or inode not in self._look_known():
                return
            if stat.S_ISDIR(self._real_fstat(handle).st_mode):
                self._synced.names[inode] = dict(self._known.names[inode])
            else:
                self._synced.content[inode] = self._known.content[inode]
            self.note()

        return syncing

    def _look_known(self) -> set[int]:
        self._look()
        return self._known.names.keys() | self._known.content.keys()

    def _look(self) -> Tree:
        found = Tree()
        self._walk(self.root, self._root, found)
        self._known.names.update(found.names)
        self._known.content.update(found.content)
        return found

    def _walk(self, directory: Path, inode: int, found: Tree) -> None:
        names = found.names[inode] = {}
        for entry in os.scandir(directory):
            with contextlib.suppress(FileNotFoundError):  # another thread deletes it
                if entry.is_dir(follow_symlinks=False):
                    names[entry.name] = entry.inode()
                    self._walk(Path(entry.path), entry.inode(), found)
                elif entry.is_file(follow_symlinks=False):
                    seen = entry.stat(follow_symlinks=False)
                    names[entry.name] = seen.st_ino
                    found.content[seen.st_ino] = self._content(entry.path, seen)

    def _content(self, path: str, seen: os.stat_result) -> bytes:
        """The bytes of a file. One that was not changed for a while is not read again: clocks of file systems tick
        some milliseconds apart."""
        version = (seen.st_ino, seen.st_mtime_ns, seen.st_size)
        if version not in self._read:
            with open(path, "rb") as file:
                data = file.read()
            if time.time_ns() - seen.st_mtime_ns < 50_000_000:
                return data
            self._read[version] = data
        return self._read[version]

    @staticmethod
    def _copy(tree: Tree) -> Tree:
        return Tree({inode: dict(names) for inode, names in tree.names.items()}, dict(tree.content))

    def after_power_loss(self, moment: Moment, chances: random.Random, target: Path | None = None) -> None:
        """Build the directory at `target` as a file system may leave it. Without `target`, in place of the recorded
        one."""
        target = target or self.root
        if target.exists():
            shutil.rmtree(target)
        mood = chances.random()  # nothing of the uncertain, everything, or each part by itself
        keep = 0.0 if mood < 0.25 else 1.0 if mood < 0.35 else chances.random()
        self._build(moment, self._root, target, chances, keep)

    def _build(self, moment: Moment, inode: int, target: Path, chances: random.Random, keep: float) -> None:
        target.mkdir(mode=0o700)
        now, certain = moment.now.names.get(inode, {}), moment.synced.names.get(inode, {})
        for name in sorted(now.keys() | certain.keys()):
            chosen = now if chances.random() < keep else certain
            child = chosen.get(name)
            if child is None:
                continue
            if child in moment.known.names:
                self._build(moment, child, target / name, chances, keep)
                continue
            data = _left_of(
                moment.synced.content.get(child, b""),
                moment.now.content.get(child, moment.known.content[child]),
                chances,
                keep,
            )
            (target / name).write_bytes(data)
            (target / name).chmod(0o600)


def _left_of(synced: bytes, written: bytes, chances: random.Random, keep: float) -> bytes:
    """What may be left of a file that was `synced` and has been `written` since."""
    if synced == written or chances.random() < keep * keep:
        return written
    if chances.random() > keep:
        return synced
    differ = (i for i, (old, new) in enumerate(zip(synced, written, strict=False)) if old != new)
    same = next(differ, min(len(synced), len(written)))
    place = chances.randint(same, len(written))
    found = written[:place] + synced[place:]
    if len(found) < len(written) and chances.random() < 0.3:  # its length was stored, its bytes were not
        found += bytes(chances.randint(len(found), len(written)) - len(found))
    return found
