"""File sinks that join the files of many epochs: `roll_size` and `roll_age`.

    <path>/_headrace/open/<partition>/part-<writer>-<instance>-<epoch>-<k>.<ext>       committed, waiting to be joined
    <path>/_headrace/rolls/<writer>-<instance>-<first>-<last>-<k>.json                 which files were joined into one
    <path>/<partition>/part-<writer>-<instance>-<first>-<k>.<ext>                      the joined file

An epoch is committed as by every file sink (`headrace.sinks.file_sink`), but its files go to `open`, where no reader
sees them. When the open files of a partition are large or old enough, they *roll*:

1. Write a roll record: the files that join, in the order of their epochs, and how many rows each epoch has.
2. Write their rows to one temporary file, sync it, and rename it to the visible name, that of its first member. On an
   object store: put the joined object under a hidden name, and copy it to the visible one. S3 copies at most 5 GiB,
   so files roll earlier there, and in several parts if they are too large (`headrace.sinks.outputs.LARGEST_OBJECT`).
3. Delete the members. The record stays.

**Why it is exactly once.** Before the record nothing has changed. After it, the members are fixed: whoever finds the
record does steps 2 and 3 again. If the visible file is there, it is complete, because it appears at once, and only
step 3 is left. So a row is either in an open file or in one visible file. The record also tells a re-run of an epoch
that its files were joined already, and `rewind` where the rows of an epoch end in a joined file.

Rows become visible when their file rolls: after `roll_age` at the latest, when the pipeline is dropped, and when the
stream stops.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from headrace.base.faults import fault_point
from headrace.base.options import duration, option, size
from headrace.errors import BadOption, HeadraceError
from headrace.sinks.file_sink import GUARANTEE, FileSink, damaged
from headrace.sinks.outputs import LARGEST_OBJECT, FileOutput, OutputInfo
from headrace.sinks.sink_kind import SinkKey, Staged
from headrace.sinks.sink_paths import MANIFESTS, writing
from headrace.stores.store_options import StoreSettings, is_remote

OPEN = "_headrace/open/"
ROLLS = "_headrace/rolls"

_PART = re.compile(r"part-(?P<writer>[0-9a-f]{16})-(?P<instance>\d+)-(?P<epoch>\d+)-(?P<k>\d+)\..*")
_ROLL = re.compile(r"(?P<writer>[0-9a-f]{16})-(?P<instance>\d+)-(?P<first>\d+)-(?P<last>\d+)-(?P<k>\d+)\.json")
ROLLED = "exactly once; rows are visible when their file rolls"
LONGEST = 3600.0  # seconds that the timer sleeps at most
AGAIN = 5.0  # seconds before it retries a failed roll
Member = tuple[int, int, str]  # an open file: its epoch, its number in the epoch, its name
_log = logging.getLogger(__name__)


def roll_size() -> Any:
    """Declares the option `roll_size`."""
    return option(
        size,
        help="join the files of several epochs until they have this size; without it, every epoch has its own files",
    )


def roll_age() -> Any:
    """Declares the option `roll_age`."""
    return option(duration, help="with or without roll_size: joined files become visible after this time at the latest")


def rolled_guarantee(max_size: int | None, max_age: int | None) -> str:
    """The guarantee of a file sink with these options."""
    return GUARANTEE if max_size is None and max_age is None else ROLLED


class _Rolls(StoreSettings, Protocol):
    @property
    def roll_size(self) -> int | None: ...


def check_rolling(settings: _Rolls) -> None:
    """Raise BadOption if files can never have the size that `roll_size` asks for."""
    if is_remote(settings.path) and settings.roll_size is not None and settings.roll_size > LARGEST_OBJECT:
        raise BadOption(
            f"roll_size is larger than a joined object may be ({LARGEST_OBJECT >> 30} GiB)",
            advice=f"Write roll_size = '{LARGEST_OBJECT >> 30}GiB' or less.",
            option="roll_size",
        )


class Joiner(Protocol):
    """Joins files of one kind."""

    def rows(self, path: Path) -> int:
        """How many rows a file has."""
        ...

    def join(self, paths: Sequence[Path], to: Path, rows: int | None = None) -> None:
        """Write the rows of files to a new one, in order; the first `rows` of them if given."""
        ...


@dataclass(frozen=True, slots=True)
class Roll:
    """A roll record: `members` joined into `final`, both relative. `rows` has (epoch, rows) in the file's order."""

    name: str
    final: str
    members: tuple[str, ...]
    rows: tuple[tuple[int, int], ...]


class RollingSink(FileSink):
    """The driver side; see the module. A timer thread rolls files that are old enough, so all methods take a lock."""

    guarantee = ROLLED

    def __init__(
        self,
        root: Path | FileOutput,
        sink: str,
        extension: str,
        joiner: Joiner,
        max_size: int | None,
        max_age: int | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`max_age` is in microseconds."""
        super().__init__(root, sink, extension)
        self._home = OPEN
        self._joiner, self._max_size = joiner, max_size
        self._max_age = None if max_age is None else max_age / 1e6
        self._clock, self._lock = clock, threading.RLock()
        self._timer: threading.Timer | None = None
        self._key: SinkKey | None = None
        self._clean = False  # true if no roll is unfinished

    def promise(self, key: SinkKey, staged: list[Staged]) -> None:
        with self._lock:
            super().promise(key, staged)

    def commit(self, key: SinkKey, staged: list[Staged]) -> int:
        with self._lock:
            rows = super().commit(key, staged)
            with writing(self.paths):
                self._roll(key)
            return rows

    def committed(self, key: SinkKey) -> bool:
        with self._lock:
            if self._key is None:  # first call after a start: an earlier process may have left files open
                self._wait(key)
            return super().committed(key)

    def discard(self, key: SinkKey) -> None:
        with self._lock:
            super().discard(key)

    def ahead(self, key: SinkKey) -> int:
        with self._lock:
            return super().ahead(key) + len(self._rolled(key, key.epoch + 1))

    def rewind(self, key: SinkKey) -> None:
        """Cuts joined files after the rows of `key`'s epoch, before the records of them are changed or deleted: until
        then `ahead` counts them."""
        with self._lock, writing(self.paths):
            for roll in self._rolled(key, key.epoch + 1):
                self._finish(roll)
                self._cut(roll, key.epoch)
            for name, epoch in self._opened(key):
                if epoch > key.epoch:
                    self.output.delete(name)
            super().rewind(key)

    def forget(self, key: SinkKey) -> None:
        """Open files are output, so they become visible."""
        with self._lock:
            with writing(self.paths):
                self._roll(key, everything=True)
                for roll in self._rolled(key, 0):
                    self.output.delete(roll.name)
            super().forget(key)

    def close(self) -> None:
        """Make everything visible. What cannot be joined now is joined by the next process."""
        with self._lock:
            self._stop_timer()
            if self._key is not None:
                try:
                    with writing(self.paths):
                        self._roll(self._key, everything=True)
                except HeadraceError:
                    pass
                self._stop_timer()
            super().close()

    # --- rolling ----------------------------------------------------------------------------------

    def _roll(self, key: SinkKey, everything: bool = False) -> None:
        """Finish the rolls that an earlier process began, then join the files that are due."""
        if not self._clean:
            for roll in self._rolled(key, 0):
                self._finish(roll)
        self._clean = False
        groups: dict[str, list[Member]] = {}
        for name, epoch in self._opened(key):
            found = _PART.fullmatch(name.rpartition("/")[2])
            assert found is not None
            groups.setdefault(name.rpartition("/")[0], []).append((epoch, int(found["k"]), name))
        for members in groups.values():
            infos = {name: self.output.info(name) for _, _, name in members}
            if everything or self._due(list(infos.values())):
                for part in _cut(sorted(members), infos, self.output.largest):
                    self._finish(self._begin(key, part))
        self._clean = True
        self._wait(key)

    def _due(self, found: Sequence[OutputInfo]) -> bool:
        most = [bound for bound in (self._max_size, self.output.largest) if bound is not None]
        large = bool(most) and sum(s.size for s in found) >= min(most)
        return large or (self._max_age is not None and self._clock() - min(s.mtime for s in found) >= self._max_age)

    def _begin(self, key: SinkKey, members: list[Member]) -> Roll:
        """Write the record of a roll: its commit point."""
        rows: dict[int, int] = {}
        with self.output.local(name for _, _, name in members) as paths:
            for (epoch, _, _), path in zip(members, paths, strict=True):
                rows[epoch] = rows.get(epoch, 0) + self._joiner.rows(path)
        names = [name.removeprefix(OPEN) for _, _, name in members]
        first, last, k = members[0][0], members[-1][0], members[0][1]
        record: dict[str, Any] = {"final": names[0], "members": names, "rows": list(rows.items())}
        name = f"{ROLLS}/{self.paths.writer(key)}-{key.instance}-{first}-{last}-{k}.json"
        self.output.write(name, json.dumps({**record, "crc": _crc(record)}).encode())
        fault_point("after-roll-record")
        return Roll(name, names[0], tuple(names), tuple(rows.items()))

    def _finish(self, roll: Roll) -> None:
        """Make the joined file visible and delete its members. Doing it twice is the same as doing it once."""
        left = [OPEN + name for name in roll.members if self.output.exists(OPEN + name)]
        if not left:
            return
        if not self.output.exists(roll.final):
            if len(left) < len(roll.members):
                raise damaged(
                    self.paths.shown(roll.name), f"{roll.final} and some of its {len(roll.members)} parts are gone"
                )
            self._replace(roll.final, left)
            fault_point("between-roll-and-delete")
        for name in left:
            self.output.delete(name)

    def _replace(self, final: str, parts: Sequence[str], rows: int | None = None) -> None:
        """Put the rows of files into place, at once."""
        hidden = f"{ROLLS}/.{final.rpartition('/')[2]}.joining"
        with self.output.local(parts) as paths:
            self.output.stage(hidden, lambda path: self._joiner.join(paths, path, rows))
        self.output.move(hidden, final)
        self.output.settle([final], parents=True)
        self.output.delete(hidden)

    def _cut(self, roll: Roll, epoch: int) -> None:
        """Remove the rows of later epochs from a joined file."""
        kept = [(e, n) for e, n in roll.rows if e <= epoch]
        if not kept:
            self.output.delete(roll.final)
        else:
            self._replace(roll.final, [roll.final], sum(n for _, n in kept))
            members = [m for m in roll.members if _epoch(m) <= epoch]
            record: dict[str, Any] = {"final": roll.final, "members": members, "rows": kept}
            named = _ROLL.fullmatch(roll.name.rpartition("/")[2])
            assert named is not None
            new = f"{named['writer']}-{named['instance']}-{named['first']}-{kept[-1][0]}-{named['k']}.json"
            self.output.write(f"{ROLLS}/{new}", json.dumps({**record, "crc": _crc(record)}).encode())
        self.output.delete(roll.name)

    # --- what there is ----------------------------------------------------------------------------

    def _roll_forward(self, key: SinkKey, files: Mapping[str, str], rows: int) -> None:
        """Leaves out files that were joined already. On an object store a file that was moved may still be staged, and
        would come back."""
        joined = {member for roll in self._rolled(key, key.epoch) for member in roll.members}
        super()._roll_forward(key, {staged: final for staged, final in files.items() if final not in joined}, rows)

    def _placed(self, key: SinkKey, final: str) -> bool:
        return super()._placed(key, final) or any(
            final in roll.members for roll in self._rolled(key, _epoch(final)) if _epoch(final) >= roll.rows[0][0]
        )

    def _later(self, key: SinkKey) -> list[str]:
        """Joined files are counted by their records; `_shown` knows only their first epoch."""
        known = self._of_instance(MANIFESTS, key)
        opened = [name for name, epoch in self._opened(key) if epoch > key.epoch]
        return opened + sorted(name for name, epoch in known if epoch > key.epoch)

    def _opened(self, key: SinkKey) -> list[tuple[str, int]]:
        """The open files of this writer and instance, with their epochs."""
        found, mine = [], (self.paths.writer(key), str(key.instance))
        for name in self.output.below(OPEN.rstrip("/")):
            part = _PART.fullmatch(name.rpartition("/")[2])
            if part is not None and (part["writer"], part["instance"]) == mine:
                found.append((name, int(part["epoch"])))
        return sorted(found)

    def _rolled(self, key: SinkKey, epoch: int) -> list[Roll]:
        """The rolls of this writer and instance whose last epoch is `epoch` or a later one."""
        mine, found = (self.paths.writer(key), str(key.instance)), []
        for match in filter(None, map(_ROLL.fullmatch, self.output.entries(ROLLS))):
            if (match["writer"], match["instance"]) == mine and int(match["last"]) >= epoch:
                found.append(self._read(f"{ROLLS}/{match[0]}"))
        return sorted(found, key=lambda roll: roll.name)

    def _read(self, name: str) -> Roll:
        try:
            record = json.loads(self.output.read(name))
            if record["crc"] != _crc(record):
                raise ValueError("it does not match its checksum")
            rows = tuple((int(e), int(n)) for e, n in record["rows"])
            return Roll(name, record["final"], tuple(record["members"]), rows)
        except (ValueError, KeyError, TypeError) as problem:
            raise damaged(self.paths.shown(name), str(problem)) from problem

    # --- the timer --------------------------------------------------------------------------------

    def _wait(self, key: SinkKey) -> None:
        """Roll again when the oldest open file is old enough, even if no more epochs come."""
        self._key = key
        self._stop_timer()
        if self._max_age is None:
            return
        opened = [name for name, _ in self._opened(key)]
        if opened:
            due = min(self.output.info(name).mtime for name in opened) + self._max_age - self._clock()
            self._start_timer(min(LONGEST, max(0.05, due)))

    def _start_timer(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._on_time)
        self._timer.daemon = True
        self._timer.start()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        with self._lock:
            if self._timer is None or self._key is None:
                return
            try:
                with writing(self.paths):
                    self._roll(self._key)
            except Exception as problem:  # the next commit reports it, but an idle stream has none
                _log.warning("sink %s: joined files are not visible yet: %s", self.paths.sink, problem)
                self._start_timer(AGAIN)


def _cut(members: list[Member], infos: Mapping[str, OutputInfo], largest: int | None) -> Iterator[list[Member]]:
    """The members, in order, in parts that are no larger than `largest` together. One member is always a part."""
    part: list[Member] = []
    size = 0
    for member in members:
        more = infos[member[2]].size
        if part and largest is not None and size + more > largest:
            yield part
            part, size = [], 0
        part.append(member)
        size += more
    yield part


def _epoch(name: str) -> int:
    found = _PART.fullmatch(name.rpartition("/")[2])
    return -1 if found is None else int(found["epoch"])


def _crc(record: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps({k: v for k, v in record.items() if k != "crc"}, sort_keys=True).encode())
