"""The name of a stream's checkpoint."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

from headrace.durable import state_errors
from headrace.errors import StateDamaged
from headrace.stored import damaged, store_text, stored_text
from headrace.streams.progress import read_progress


def checkpoint_id(directory: Path, stream: str) -> str:
    """Names this checkpoint among all that ever were: a fresh one restarts epochs, and sinks must not mix them up.
    Raises StateDamaged when a stream that has committed has lost its checkpoint, or the name of it."""
    file, checkpoint = directory / "checkpoint.id", directory / "checkpoint"
    if file.exists() != checkpoint.exists() and read_progress(directory).epoch >= 0:
        kept, gone = (file, checkpoint) if file.exists() else (checkpoint, file)
        raise StateDamaged(
            f"stream {stream} has committed epochs, but {gone} is missing beside {kept}",
            advice="Restore it from a backup or a savepoint, or drop the stream and create it anew.",
            path=str(gone),
        )
    if not file.exists():
        with state_errors(file):
            directory.mkdir(parents=True, exist_ok=True)
        store_text(file, uuid.uuid4().hex)
    found = stored_text(file) or ""
    if re.fullmatch(r"[\w-]{1,100}", found) is None:
        raise damaged(file, "does not hold the name of a checkpoint")
    return found
