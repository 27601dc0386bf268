"""Decides which epochs of a feed (`headrace.sinks.feed_log`) are deleted, and deletes whole feeds.

The rows of an epoch are deleted when no consumer needs them. Its manifest stays as long as it may have to say that the
epoch is committed: the newest manifest of each writer, which is a pipeline instance under one checkpoint. A writer runs
only its newest epoch again, but others may have written since. The pipeline that replaces it, or that it replaces,
commits in a thread of its own, and several times, while a sink lets the epoch wait.

    <feed>/ended-<instance>    no epoch of the instance is run again, so nothing of it has to stay

Such a mark is made when the hub forgets the instance, and deleted with its last manifest. So a feed keeps one manifest
more for each of the pipelines that write to it now.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base.durable import state_errors

if TYPE_CHECKING:
    from headrace.sinks.feed_log import FeedLog

_ENDED = re.compile(r"ended-(\d+)")


def end_writer(log: FeedLog, instance: int) -> None:
    """No epoch of this instance is ever run again. Does nothing if the feed has no epoch of it. The mark is not
    durable: without it one manifest stays."""
    kept = (log.kept_epoch(position) for position in log.positions())
    if any(epoch is not None and epoch.instance == instance for epoch in kept):
        with state_errors(log.directory):
            (log.directory / f"ended-{instance}").touch(mode=0o600)


def trim(log: FeedLog) -> None:
    """Delete the epochs that no consumer needs. The manifest before the first needed one stays, too, so that a consumer
    can see how its last epoch ended. Segments go first: after a crash the manifest still names what is left, and the
    next call goes on."""
    needed = log.needed_from()
    if needed is None:
        return
    read = [position for position in log.positions() if position < needed]
    with state_errors(log.directory):
        ended = _ended(log)
        newest = {(e.checkpoint, e.instance): e.position for e in map(log.epoch, read) if e.instance not in ended}
        for position in read:
            for directory in {(log.segments / s.file).parent for s in log.epoch(position).segments}:
                shutil.rmtree(directory, ignore_errors=True)
            if position < needed - 1 and position not in newest.values():
                log.path(position).unlink(missing_ok=True)
        if ended:
            for instance in ended - {log.epoch(position).instance for position in log.positions()}:
                (log.directory / f"ended-{instance}").unlink(missing_ok=True)


def remove_feed(feed: Path) -> None:
    """Delete a feed. It is renamed first, so a Spark reader that asks for its lock meanwhile finds no feed and leaves
    no file. The hub deletes what a crash leaves when it is opened."""
    gone = feed.with_name(f".gone-{uuid.uuid4().hex}")
    try:
        feed.rename(gone)
    except OSError:  # it is gone, or cannot be renamed: what can be deleted is deleted
        gone = feed
    shutil.rmtree(gone, ignore_errors=True)
    with contextlib.suppress(OSError):  # other feeds may be there
        feed.parent.rmdir()


def _ended(log: FeedLog) -> set[int]:
    """The instances of which no epoch is run again."""
    with contextlib.suppress(FileNotFoundError):
        return {int(m[1]) for m in map(_ENDED.fullmatch, os.listdir(log.directory)) if m is not None}
    return set()
