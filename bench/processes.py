"""What a process and all it started use: Spark's JVM and its Python workers are among them."""

from __future__ import annotations

import os
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def usage(root: int | None = None) -> tuple[float, int]:
    """Seconds of processor time so far, and bytes of memory now (shared pages shared out), of the whole family of the
    process `root`, or of this one.

    Processes that ended are left out, but for those whose parent has waited for them.
    """
    times, family = _family(os.getpid() if root is None else root)
    return sum(times.get(pid, 0.0) for pid in family), sum(map(_memory, family))


def python_memory(root: int) -> int:
    """Bytes of memory of the Python processes in the family of `root`."""
    return sum(_memory(pid) for pid in _family(root)[1] if "python" in _program(pid))


def _family(root: int) -> tuple[dict[int, float], set[int]]:
    """The processor time of all processes, and the process `root` with all that it started."""
    parents: dict[int, int] = {}
    times: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(") ")[2].split()
            except OSError:  # it has just ended
                continue
            parents[int(entry.name)] = int(fields[1])
            times[int(entry.name)] = sum(map(int, fields[11:15])) / _TICK
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return times, family


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/exe").resolve().name
    except OSError:
        return ""


def _memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
