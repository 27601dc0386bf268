"""`headrace repair`: make the damaged journal of a stream readable again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from headrace.durable import private_directory
from headrace.errors import UnknownStream
from headrace.ingress.repair import repair
from headrace.sources.journal import JOURNAL, place_of
from headrace.streams.progress import read_progress
from headrace.streams.state_dir import StateDir


def repair_journal(state_dir: Path, stream: str) -> dict[str, int]:
    """The bytes that were lost, for each file that was damaged; 0 for a journal of which nothing is left.
    Raises StateInUse while a hub is open."""
    if not (state_dir / "VERSION").exists():
        raise _unknown(state_dir, stream)
    state = StateDir.open(state_dir)
    try:
        own = state.stream(stream.lower())
        directory, read_to = own / "source" / JOURNAL, place_of((read_progress(own).end or {}).get("source"))
        if not directory.is_dir() and not read_to.file:
            raise _unknown(state_dir, stream)
        private_directory(directory)
        losses: Counter[str] = Counter()
        for loss in repair(directory, read_to):
            losses[str(loss.path)] += loss.size
        return dict(losses)
    finally:
        state.close()


def _unknown(state_dir: Path, stream: str) -> UnknownStream:
    return UnknownStream(
        f"{state_dir} has no stream {stream} with a journal",
        advice="Name a stream of source tcp or http, and its state directory with --state-dir.",
        name=stream,
    )
