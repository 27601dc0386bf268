"""Named places where a test can make something fail: a test hook, off unless HEADRACE_FAULT or HEADRACE_CRASH is set.

    HEADRACE_FAULT="between-manifest-and-rename@2"   the second time this process gets there
    HEADRACE_FAULT_PID="4711"                        kill that process too (the driver, from a task)

A kill is SIGKILL, so nothing is flushed, closed or rolled back: what a crash at that place would leave behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

_hits: dict[str, int] = {}


def fault_point(name: str) -> None:
    """Does nothing, or kills this process when HEADRACE_FAULT names this place and this is the chosen visit."""
    if fault_chosen(name):
        _die()


def fault_chosen(name: str) -> bool:
    """Whether HEADRACE_FAULT names this place and this is the chosen visit: then the caller does something wrong."""
    wanted = os.environ.get("HEADRACE_FAULT")
    if not wanted:
        return False
    place, _, visit = wanted.partition("@")
    if place != name:
        return False
    _hits[name] = _hits.get(name, 0) + 1
    return _hits[name] == int(visit or "1")


def crash_point(pipeline: str) -> None:
    """Does nothing, or kills this worker and nothing else, as a crash in native code would: when the file that
    HEADRACE_CRASH names has `pipeline` on a line of its own. With "/for ever" behind the name it hangs instead."""
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
    with contextlib.suppress(ProcessLookupError):  # gone already is what was asked for
        os.kill(victim, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # the signal is on its way; nothing after this place may run
