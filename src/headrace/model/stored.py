"""Small JSON documents in a stream's directory, with a checksum that is verified on every read.

The first line is the document as JSON. The second line has the format version and the checksum of the first. A file
that was truncated, overwritten or written by a newer headrace therefore raises a coded error with its path. It never
raises a JSON error and never yields a wrong value. Files of earlier versions have no second line and are accepted: a
truncated JSON object does not parse, and one that lost only its checksum is complete.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from headrace.base.durable import state_error, state_errors, write_atomic, write_quickly
from headrace.errors import HeadraceError, StateDamaged, StateTooNew
from headrace.model.codec import dump, load

FORMAT = 1
T = TypeVar("T")


def store(path: Path, value: object) -> None:
    """Write `value` durably. Raises DiskFull or StateUnavailable."""
    store_text(path, dump(value))


def store_text(path: Path, text: str, durable: bool = True) -> None:
    """Write one line of text with its checksum. If it is not `durable`, it may be gone or damaged after a power
    loss."""
    line = text.encode()
    seal = json.dumps({"format": FORMAT, "crc": zlib.crc32(line)})
    with state_errors(path):
        (write_atomic if durable else write_quickly)(path, line + b"\n" + seal.encode() + b"\n")


def stored(kind: type[T], path: Path) -> T | None:
    """The value stored at `path`, or None if there is no file. Raises StateDamaged, StateTooNew and
    StateUnavailable."""
    return parsed(path, lambda text: load(kind, text))


def stored_text(path: Path, unsealed: Callable[[str], bool]) -> str | None:
    """The text that was stored at `path`; None when there is no file. Without its checksum it must match `unsealed`."""
    return parsed(path, lambda text: text, unsealed)


def is_object(text: str) -> bool:
    """True for the text of a JSON object: one that was cut does not parse."""
    return text.startswith("{")


def parsed(path: Path, parse: Callable[[str], T], unsealed: Callable[[str], bool] = is_object) -> T | None:
    """The document at `path`, decoded by `parse`. None if there is no file. A file of an earlier version has no
    checksum: `unsealed` decides by its text whether it can be complete."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise state_error(problem, path) from problem
    try:
        line, _, seal = data.partition(b"\n")
        if seal.strip():
            _check(path, line, json.loads(seal))
        elif not unsealed(line.decode()):
            raise damaged(path, "has no checksum: it was truncated, or headrace did not write it")
        return parse(line.decode())
    except (StateDamaged, StateTooNew):
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, HeadraceError) as problem:
        raise damaged(path, f"cannot be read: {problem}") from problem


def _check(path: Path, line: bytes, seal: dict[str, int]) -> None:
    if seal["format"] > FORMAT:
        raise StateTooNew(
            f"{path} has format {seal['format']}; this version of headrace reads formats up to {FORMAT}",
            advice="Use a newer headrace, or restore a savepoint.",
            path=str(path),
            version=seal["format"],
        )
    if seal["crc"] != zlib.crc32(line):
        raise damaged(path, "does not match its checksum")


def damaged(path: Path, how: str, version: int | None = None) -> StateDamaged:
    """The error for a damaged file of a stream."""
    return StateDamaged(
        f"{path} {how}",
        advice="Restore the file from a backup and start one of the stream's pipelines, restore a savepoint, or drop "
        "the stream and its pipelines.",
        path=str(path),
        version=version,
    )
