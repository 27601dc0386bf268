"""Pauses Python's cyclic garbage collector while an epoch is planned, run or committed.

An epoch of hundreds of pipelines makes many small objects that live until its end and have no cycles, so every
collection in between finds nothing. With 300 pipelines, collections took 70 of 200 ms of an epoch's CPU time. After the
pause the collector runs as before.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_paused = 0
_was_enabled = False


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the collector inside the block. Threads may overlap: the last one to leave ends the pause."""
    global _paused, _was_enabled
    with _lock:
        if _paused == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _paused += 1
    try:
        yield
    finally:
        with _lock:
            _paused -= 1
            if _paused == 0 and _was_enabled:
                gc.enable()
