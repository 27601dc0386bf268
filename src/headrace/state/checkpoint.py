"""A stream's Spark checkpoint: its name, where it lies, and how it is brought to another place."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

from headrace.base.durable import fsync, private_directory, state_errors, write_atomic
from headrace.errors import StateDamaged
from headrace.model.stored import damaged, store_text, stored_text
from headrace.state.progress import read_progress

CHECKPOINT = "checkpoint"
ID = "checkpoint.id"
_SCHEMA_FILE = re.compile(r".*/(state/\d+/_stateSchema/.*)", re.DOTALL)


def checkpoint_id(directory: Path, stream: str) -> str:
    """The name of a stream's checkpoint, unique among all that ever were: a fresh checkpoint restarts epochs, and sinks
    must not confuse them. Raises StateDamaged when a stream that has committed has lost its checkpoint, or its name."""
    file, checkpoint = directory / ID, directory / CHECKPOINT
    if file.exists() != checkpoint.exists() and read_progress(directory).epoch >= 0:
        kept, gone = (file, checkpoint) if file.exists() else (checkpoint, file)
        raise StateDamaged(
            f"stream {stream} has committed epochs, but {gone} is missing beside {kept}",
            advice="Restore it from a backup or a savepoint, or drop the stream and create it again.",
            path=str(gone),
        )
    if not file.exists():
        with state_errors(file):
            private_directory(directory)
        store_text(file, uuid.uuid4().hex)
    found = stored_text(file, lambda text: re.fullmatch(r"[0-9a-f]{32}", text) is not None) or ""
    if re.fullmatch(r"[\w-]{1,100}", found) is None:
        raise damaged(file, "does not hold the name of a checkpoint")
    return found


def location(checkpoint: Path) -> str:
    """`checkpoint` as Spark's option checkpointLocation takes it.

    Spark makes a Hadoop Path of the text, which escapes special characters itself: a URI, such as `as_uri` gives, would
    be escaped twice and lead to another directory. The scheme stays: without it the checkpoint would lie wherever
    fs.defaultFS points. A path that began with two slashes would be read as the name of a host.
    """
    return "file:/" + str(checkpoint.absolute()).lstrip("/")


def misplaced(checkpoint: Path) -> Path:
    """Where earlier versions made Spark put a checkpoint."""
    return Path(quote_from_bytes(os.fsencode(checkpoint.absolute())))


def settle_checkpoint(directory: Path) -> None:
    """Put the checkpoint of a stream where `location` says, and let its files name that place.

    Earlier versions handed Spark a URI, so that a path with a blank, a `%` or a letter outside ASCII led to a directory
    whose name was escaped once more. A state directory that was moved as a whole is put right too.
    """
    right = directory.absolute() / CHECKPOINT
    wrong = misplaced(right)
    # A directory with a name of its own beside it is another stream's, of another state directory.
    if not right.exists() and wrong != right and wrong.is_dir() and not (wrong.parent / ID).exists():
        _move(wrong, right)
    relocate(right, right)


def relocate(checkpoint: Path, place: Path) -> None:
    """Spark's metadata names the files of its state schema by their full path: let them be those at `place`."""
    for path in checkpoint.glob("state/*/_metadata/*/*"):
        if path.suffix == ".crc":
            continue
        with contextlib.suppress(ValueError):  # torn or no text: Spark says so, and which file it is
            version, _, body = path.read_text().partition("\n")
            facts = json.loads(body)
            moved = _at(facts, location(place))
            if moved != facts:
                path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # without one nothing is checked
                write_atomic(path, f"{version}\n{json.dumps(moved, separators=(',', ':'))}".encode())


def _at(facts: Any, place: str) -> Any:
    if isinstance(facts, dict):
        return {key: _at(value, place) for key, value in facts.items()}
    if isinstance(facts, list):
        return [_at(value, place) for value in facts]
    named = _SCHEMA_FILE.fullmatch(facts) if isinstance(facts, str) else None
    return f"{place}/{named[1]}" if named else facts


def _move(old: Path, new: Path) -> None:
    """Move a directory so that `new` is there whole or not at all; they may be on different file systems."""
    aside = new.with_name(f".{new.name}.{uuid.uuid4().hex}")
    private_directory(new.parent)
    try:
        os.rename(old, new)
    except OSError:
        shutil.copytree(old, aside)
        os.rename(aside, new)
        shutil.rmtree(old, ignore_errors=True)
    fsync(new.parent)
    with contextlib.suppress(OSError):  # empty, unless others use it
        old.parent.rmdir()
