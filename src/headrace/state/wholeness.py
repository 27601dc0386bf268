"""Checks the files of a stream before its query starts: they must be readable and consistent."""

from __future__ import annotations

from pathlib import Path

from headrace.control.log import SignalLog
from headrace.model.stored import damaged
from headrace.state.plans import PlanStore
from headrace.state.progress import read_progress
from headrace.state.quarantine import read_quarantine


def require_whole(directory: Path) -> None:
    """Raise StateDamaged, StateTooNew or StateUnavailable with the path of the bad file."""
    plans, progress = PlanStore(directory), read_progress(directory)
    read_quarantine(directory)
    SignalLog(directory).pending(0)
    current = plans.current()
    for version in {progress.plan, current} - {0}:
        plans.load(version)
    if progress.epoch >= 0 and not current:
        raise damaged(directory / "current", "is missing, but the stream has committed epochs")
    done = [int(file.name) for file in (directory / "checkpoint" / "commits").glob("*") if file.name.isdigit()]
    if done and max(done) > progress.epoch:
        how = f"is missing or older than the checkpoint: Spark has committed epoch {max(done)}"
        raise damaged(directory / "progress.json", how)
