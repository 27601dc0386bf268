"""The processes below a hub, by what they do; and killing one of a kind."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from dataclasses import dataclass
from pathlib import Path

_DAEMON = "-m headrace.spark.daemon "  # the JVM has the name of the module in a setting
# By a part of the command line. Workers have the command line of the daemon that they were forked from.
_COMMANDS = {
    "planner": "python_streaming_source_runner",
    "gateway": "headrace.ingress.gateway",
    "executor": "CoarseGrainedExecutorBackend",
}


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    command: str


def below(root: int) -> list[Process]:
    """The live descendants of a process."""
    found: dict[int, Process] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it ended meanwhile
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(entry.name)] = Process(int(entry.name), int(fields[1]), command)
    children = {root}
    result: list[Process] = []
    while children:
        next_ones = [p for p in found.values() if p.parent in children]
        result += next_ones
        children = {p.pid for p in next_ones}
    return result


def victims(hub: int, target: str, rng: random.Random) -> list[int]:
    """The processes to kill: one worker, planner, gateway or executor of a hub, or a daemon and its workers. Empty when
    there is none at the moment."""
    processes = below(hub)
    daemons = [p for p in processes if _DAEMON in p.command]
    pids = {p.pid for p in daemons}
    if target == "worker":
        return _one([p.pid for p in daemons if p.parent in pids], rng)
    if target == "daemon":
        chosen = _one([p.pid for p in daemons if p.parent not in pids], rng)
        return [*chosen, *(p.pid for p in daemons if p.parent in chosen)]
    return _one([p.pid for p in processes if _COMMANDS[target] in p.command], rng)


def kill(pids: list[int]) -> int:
    """Send SIGKILL to all. Returns how many of them were still alive."""
    hit = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            hit += 1
    return hit


def _one(pids: list[int], rng: random.Random) -> list[int]:
    return [rng.choice(sorted(pids))] if pids else []
