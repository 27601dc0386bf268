"""`headrace repair`: makes the damaged journal of a stream readable again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from urllib.parse import unquote

from headrace.base.durable import private_directory
from headrace.base.unknown import unknown
from headrace.errors import UnknownStream
from headrace.ingress.mark import is_gone
from headrace.ingress.repair import repair
from headrace.sources.journal_reader import JOURNAL, place_of
from headrace.state.progress import read_progress
from headrace.state.state_dir import STREAMS, StateDir


def repair_journal(state_dir: Path, stream: str) -> dict[str, int]:
    """Repair the journal of a stream. Returns the lost bytes of each damaged file; 0 for a journal that is completely
    gone. Raises StateInUse while a hub is open."""
    if not (state_dir / "VERSION").exists():
        raise _unknown(state_dir, stream)
    state = StateDir.open(state_dir)
    try:
        own = state.stream(stream.lower())
        directory, read_to = own / "source" / JOURNAL, place_of((read_progress(own).end or {}).get("source"))
        if not directory.is_dir() and not is_gone(directory, read_to):
            raise _unknown(state_dir, stream)
        private_directory(directory)
        losses: Counter[str] = Counter()
        for loss in repair(directory, read_to):
            losses[str(loss.path)] += loss.size
        return dict(losses)
    finally:
        state.close()


def _unknown(state_dir: Path, stream: str) -> UnknownStream:
    journals = (state_dir / STREAMS).glob(f"*/source/{JOURNAL}")
    return unknown(
        UnknownStream,
        "stream with a journal",
        stream,
        sorted(unquote(journal.parent.parent.name) for journal in journals),
        of=str(state_dir),
        advice="Name a stream of source tcp, http, mqtt or nats_core, and its state directory with --state-dir.",
    )
