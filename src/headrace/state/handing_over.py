"""Makes a restored hub the owner of the sinks that its savepoint knows; see `headrace.sinks.owner_mark`."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path

from headrace.model.stored import store
from headrace.sinks.owner_mark import OWNER, HasOwner, Owner, owner_of
from headrace.sinks.sink_kind import DriverSink


def hand_over(directory: Path, checkpoint: str, sinks: Iterable[DriverSink], state_dir: Path, at_once: bool) -> None:
    """Make the restored stream in `directory` the owner of these sinks: `at_once`, or when it first uses each of them.
    It will run in `state_dir`. It may replace the mark of the hub that took the savepoint, and those that are there
    now."""
    found = [sink.owner_mark for sink in sinks if isinstance(sink, HasOwner)]
    marks = {mark.place(checkpoint): mark for mark in found if mark is not None}.values()
    known = [one for one in (owner_of(directory), *(mark.read(checkpoint) for mark in marks)) if one is not None]
    after = dict.fromkeys(id for one in known for id in (*one.after, one.id))
    own = Owner(secrets.token_hex(16), str(state_dir.absolute()), tuple(after))
    store(directory / OWNER, own)
    for mark in marks if at_once else ():
        mark.write(checkpoint, own)
