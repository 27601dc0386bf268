"""Named places where a test can inject a failure. Inactive unless HEADRACE_FAULT or HEADRACE_CRASH is set.

    HEADRACE_FAULT="between-manifest-and-rename@2"   the second time this process reaches it
    HEADRACE_FAULT_PID="4711"                        kill that process too (the driver, from a task)

The process gets SIGKILL, so it flushes, closes and rolls back nothing, as in a crash at that place.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

_hits: dict[str, int] = {}


def fault_point(name: str) -> None:
    """Kill this process if HEADRACE_FAULT names this place and this visit."""
    if fault_chosen(name):
        _die()


def fault_chosen(name: str) -> bool:
    """True if HEADRACE_FAULT names this place and this visit: the caller then misbehaves on purpose."""
    wanted = os.environ.get("HEADRACE_FAULT")
    if not wanted:
        return False
    place, _, visit = wanted.partition("@")
    if place != name:
        return False
    _hits[name] = _hits.get(name, 0) + 1
    return _hits[name] == int(visit or "1")


def crashes_listed() -> bool:
    """True if HEADRACE_CRASH is set. A caller with hundreds of pipelines asks once, before it calls `crash_point`."""
    return bool(os.environ.get("HEADRACE_CRASH"))


def crash_point(pipeline: str) -> None:
    """Kill this worker process, as a crash in native code would, if the file that HEADRACE_CRASH names lists `pipeline`
    on a line. With "/for ever" after the name, the worker hangs instead."""
    listed = os.environ.get("HEADRACE_CRASH")
    if not listed or not os.path.exists(listed):
        return
    with open(listed, encoding="utf-8") as file:
        chosen = file.read().splitlines()
    if pipeline in chosen:
        os.kill(os.getpid(), signal.SIGSEGV)
    if f"{pipeline}/for ever" in chosen:
        time.sleep(3600)


def _die() -> None:
    victim = int(os.environ.get("HEADRACE_FAULT_PID") or os.getpid())
    with contextlib.suppress(ProcessLookupError):  # it is dead already
        os.kill(victim, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # until the signal arrives: nothing after this place may run
