"""Files that a stream leaves out (`on_bad_file = 'skip'`): who decides, and where the decision is kept.

The file log is the one durable place of a decision, and the planning process its one writer. What is wrong with a file
may show when it is listed: then the planner decides. Or it shows when a task reads it, perhaps in the middle: then the
task reports it, the driver commits nothing of the epoch and leaves the report here (`hand_over`), and the planner that
runs the epoch again takes it into its log before it hands out the first split. So every task of every run of the epoch
that can commit leaves out the same bytes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.base.durable import private_directory, write_atomic
from headrace.errors import HeadraceError
from headrace.sources.extent import Stamp

SHOWN = 20  # of the files that were left out, the newest
_HANDED = "skip.json"
_SUMMARY = "bad_files.json"


@dataclass(frozen=True, slots=True)
class BadRange:
    """What a task found: the bytes of extent number `extent` from `begin` on could not be read. `stamp` is the file's
    at that time, if it is there."""

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
    """A file that is left out, and why. `stamp` tells when it has changed and is worth another look; if nothing of it
    was read before (`unread`), a repaired one is read like a new file. `extent` is left out, if it was logged."""

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
    """Leave what tasks found for the planner of the next run. Called on the driver."""
    private_directory(source_dir)
    write_atomic(source_dir / _HANDED, json.dumps([asdict(bad) for bad in found]).encode())


def handed_over(source_dir: Path) -> list[BadRange]:
    """What the driver left; the planner calls `taken` when it is in its log. If it is damaged, the epoch is run with
    the files, and the tasks find them again."""
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        return [BadRange.parse(bad) for bad in json.loads((source_dir / _HANDED).read_bytes())]
    return []


def taken(source_dir: Path) -> None:
    """The planner has logged what was handed over."""
    with contextlib.suppress(FileNotFoundError):
        (source_dir / _HANDED).unlink()


@dataclass(frozen=True, slots=True)
class Skipped:
    """How many files were left out since the beginning, and the newest of them: path to code and message."""

    count: int = 0
    newest: tuple[tuple[str, str], ...] = ()


def write_summary(source_dir: Path, count: int, files: Sequence[BadFile]) -> None:
    """Publish for `status()` what the log holds; only if it is news."""
    newest = tuple((f.path, f"[{f.code}] {f.message}") for f in list(files)[-SHOWN:])
    if read_summary(source_dir) != Skipped(count, newest):
        write_atomic(source_dir / _SUMMARY, json.dumps({"count": count, "newest": newest}).encode())


def read_summary(source_dir: Path) -> Skipped:
    """What the planner published last. It is derived from the log, so a damaged one is written again."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads((source_dir / _SUMMARY).read_bytes())
        return Skipped(int(found["count"]), tuple((str(path), str(why)) for path, why in found["newest"]))
    return Skipped()
