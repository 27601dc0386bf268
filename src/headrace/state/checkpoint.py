"""A stream's Spark checkpoint: its id, its location, and how to move it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

from headrace.base.durable import fsync, private_directory, state_errors, write_atomic
from headrace.base.hadoop import hadoop_text
from headrace.errors import StateDamaged
from headrace.model.stored import damaged, store_text, stored_text
from headrace.state.progress import read_progress

CHECKPOINT = "checkpoint"
ID = "checkpoint.id"
_SCHEMA_FILE = re.compile(r".*/(state/\d+/_stateSchema/.*)", re.DOTALL)


def checkpoint_id(directory: Path, stream: str) -> str:
    """The unique id of a stream's checkpoint. A fresh checkpoint restarts epoch numbers, and the id keeps sinks from
    confusing them. Raises StateDamaged if a stream with committed epochs has lost its checkpoint or the id."""
    file, checkpoint = directory / ID, directory / CHECKPOINT
    if file.exists() != checkpoint.exists() and read_progress(directory).epoch >= 0:
        kept, gone = (file, checkpoint) if file.exists() else (checkpoint, file)
        raise StateDamaged(
            f"stream {stream} has committed epochs, but {gone} is missing while {kept} exists",
            advice="Restore it from a backup or a savepoint, or drop the stream and create it again.",
            path=str(gone),
        )
    if not file.exists():
        with state_errors(file):
            private_directory(directory)
        store_text(file, uuid.uuid4().hex)
    return known_checkpoint(directory) or ""


def known_checkpoint(directory: Path) -> str | None:
    """The id of a stream's checkpoint. None if it has none yet. Raises StateDamaged."""
    file = directory / ID
    found = stored_text(file, lambda text: re.fullmatch(r"[0-9a-f]{32}", text) is not None)
    if found is not None and re.fullmatch(r"[\w-]{1,100}", found) is None:
        raise damaged(file, "does not hold the id of a checkpoint")
    return found


def own_checkpoint_id(stream: str, instance: int) -> str:
    """The id under which the query of an instance on the dedicated host first writes to sinks; `stream` is the id of
    its first stream. It can be computed, so that a restore finds what was written after the savepoint by a pipeline
    that the savepoint does not know."""
    return hashlib.sha256(f"{stream}\0{instance}".encode()).hexdigest()[:32]


def continue_checkpoint(directory: Path, checkpoint: str) -> None:
    """Let a new, empty checkpoint write to sinks under the id of an earlier one. Its epochs must have later numbers."""
    store_text(directory / ID, checkpoint)


def location(checkpoint: Path) -> str:
    """`checkpoint` as a value of Spark's option checkpointLocation."""
    return hadoop_text(checkpoint)


def misplaced(checkpoint: Path) -> Path:
    """Where Spark put the checkpoint under earlier versions of headrace."""
    return Path(quote_from_bytes(os.fsencode(checkpoint.absolute())))


def settle_checkpoint(directory: Path) -> None:
    """Move the checkpoint of a stream to its `location`, and correct the paths inside its files.

    Earlier versions passed a URI to Spark. A path with a space, a `%` or a non-ASCII letter then named a directory
    that was escaped twice. This also corrects a state directory that was moved as a whole.
    """
    right = directory.absolute() / CHECKPOINT
    wrong = misplaced(right)
    # A directory with an id file beside it belongs to a stream of another state directory.
    if not right.exists() and wrong != right and wrong.is_dir() and not (wrong.parent / ID).exists():
        _move(wrong, right)
    relocate(right, right)


def relocate(checkpoint: Path, place: Path) -> None:
    """Correct the absolute paths of state schema files in Spark's metadata: they must be below `place`."""
    for path in checkpoint.glob("state/*/_metadata/*/*"):
        if path.suffix == ".crc":
            continue
        with contextlib.suppress(ValueError):  # torn or not text: Spark reports it with the path
            version, _, body = path.read_text().partition("\n")
            facts = json.loads(body)
            moved = _at(facts, location(place))
            if moved != facts:
                path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Spark checks nothing without this file
                write_atomic(path, f"{version}\n{json.dumps(moved, separators=(',', ':'))}".encode())


def _at(facts: Any, place: str) -> Any:
    if isinstance(facts, dict):
        return {key: _at(value, place) for key, value in facts.items()}
    if isinstance(facts, list):
        return [_at(value, place) for value in facts]
    named = _SCHEMA_FILE.fullmatch(facts) if isinstance(facts, str) else None
    return f"{place}/{named[1]}" if named else facts


def _move(old: Path, new: Path) -> None:
    """Move a directory atomically, also between file systems: `new` is complete or absent."""
    aside = new.with_name(f".{new.name}.{uuid.uuid4().hex}")
    private_directory(new.parent)
    try:
        os.rename(old, new)
    except OSError:
        shutil.copytree(old, aside)
        os.rename(aside, new)
        shutil.rmtree(old, ignore_errors=True)
    fsync(new.parent)
    with contextlib.suppress(OSError):  # fails if it is not empty
        old.parent.rmdir()
