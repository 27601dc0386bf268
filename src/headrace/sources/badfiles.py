"""Files that a stream leaves out (`on_bad_file = 'skip'`).

Only the planning process decides to leave a file out, and it stores the decision only in the file log. It may find that
a file is bad when it lists it. Or a task finds it while reading, perhaps in the middle of the file. Then the task
reports it, and the driver commits nothing of the epoch and stores the report (`hand_over`). The planner that runs the
epoch again adds the report to its log before it makes the first split. So every task of every run that can commit the
epoch leaves out the same bytes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.base.durable import private_directory, write_atomic
from headrace.errors import HeadraceError, StateDamaged, StateTooNew
from headrace.model.stored import parsed, store_text
from headrace.sources.extent import Stamp

SHOWN = 20  # the newest left-out files in the summary
_HANDED = "skip.json"
_SUMMARY = "bad_files.json"


@dataclass(frozen=True, slots=True)
class BadRange:
    """A task's report that it could not read extent number `extent` from byte `begin` on. `stamp` is the file's stamp
    at that time; None if the file is gone."""

    path: str
    extent: int
    begin: int
    code: str
    message: str
    stamp: Stamp | None = None

    @staticmethod
    def parse(value: Mapping[str, Any]) -> BadRange:
        return BadRange(**{**value, "stamp": _stamp(value["stamp"])})


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file that is left out, and why. The file is checked again when it no longer has `stamp`. With `unread`, nothing
    of it was read before, and a repaired file is read like a new one. `extent` is its extent, if it was logged; it is
    left out, too."""

    path: str
    code: str
    message: str
    stamp: Stamp | None = None
    unread: bool = True
    extent: int | None = None

    @staticmethod
    def parse(value: Mapping[str, Any]) -> BadFile:
        return BadFile(**{**value, "stamp": _stamp(value["stamp"])})


def _stamp(value: Mapping[str, int] | None) -> Stamp | None:
    return None if value is None else Stamp(**value)


def in_short(problem: HeadraceError) -> tuple[str, str]:
    """Code and message of an error, on one line."""
    return problem.code, " ".join(problem.message.split())


def hand_over(source_dir: Path, found: Sequence[BadRange]) -> None:
    """Store the reports of tasks for the planner of the next run. The driver calls it."""
    private_directory(source_dir)
    store_text(source_dir / _HANDED, json.dumps([asdict(bad) for bad in found]))


def handed_over(source_dir: Path) -> list[BadRange]:
    """The reports that the driver stored. The planner logs them, then calls `taken`. If the file is damaged there are
    none: the epoch is run with the bad files, and tasks report them again."""
    with contextlib.suppress(StateDamaged, StateTooNew):
        return parsed(source_dir / _HANDED, _ranges, lambda text: False) or []
    return []


def _ranges(text: str) -> list[BadRange]:
    return [BadRange.parse(bad) for bad in json.loads(text)]


def taken(source_dir: Path) -> None:
    """Delete the reports, after the planner has logged them."""
    with contextlib.suppress(FileNotFoundError):
        (source_dir / _HANDED).unlink()


@dataclass(frozen=True, slots=True)
class Skipped:
    """How many files the stream has left out, and the newest of them as (path, code and message)."""

    count: int = 0
    newest: tuple[tuple[str, str], ...] = ()


def write_summary(source_dir: Path, count: int, files: Sequence[BadFile]) -> None:
    """Publish the left-out files for `status()`, if they have changed."""
    newest = tuple((f.path, f"[{f.code}] {f.message}") for f in list(files)[-SHOWN:])
    if read_summary(source_dir) != Skipped(count, newest):
        write_atomic(source_dir / _SUMMARY, json.dumps({"count": count, "newest": newest}).encode())


def read_summary(source_dir: Path) -> Skipped:
    """The summary that the planner published last. The planner derives it from the log, so it replaces a damaged
    one."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads((source_dir / _SUMMARY).read_bytes())
        return Skipped(int(found["count"]), tuple((str(path), str(why)) for path, why in found["newest"]))
    return Skipped()
