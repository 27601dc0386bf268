"""Memory per further pipeline: one hub with one pipeline, then 299 more of its family, on the same stream.

Memory is that of the hub's Python processes (shared pages shared out) and the used heap of the JVM after a collection.
Pages that the JVM keeps free are left out: their number depends on when it collects, not on the pipelines. State that
the pipelines hold in memory is part of the JVM's and is subtracted by the size that their status tells.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import headrace
from bench import feed
from bench.peers.worker import link
from bench.peers.workloads import WORKLOADS
from bench.processes import python_memory
from headrace.hub.hub import Hub

FURTHER, ROWS, SETTLE = 299, 2_000, 12


def per_pipeline(work: Path, say: Callable[[str], None]) -> float:
    """Bytes of a further pipeline, without its state."""
    (work / "in").mkdir(parents=True)
    files = feed.write(work / "made", 2 * SETTLE, ROWS, 100)
    with headrace.connect(work / "state") as hub:
        hub.sql(f"{feed.declaration(work / 'in')}; CREATE SINK out WITH (type = 'noop')")
        _add(hub, range(1))
        before = _settled(hub, work, files[:SETTLE], ROWS * SETTLE)
        state = _state(hub)
        _add(hub, range(1, 1 + FURTHER))
        after = _settled(hub, work, files[SETTLE:], ROWS * 2 * SETTLE)
        grown = sum(after) - sum(before) - (_state(hub) - state)
    say(
        f"  memory: {FURTHER} further pipelines: Python {(after[0] - before[0]) / 1e6:+.1f} MB, JVM heap in use "
        f"{(after[1] - before[1]) / 1e6:+.1f} MB; {grown / FURTHER / 1e3:.0f} kB each without state"
    )
    return grown / FURTHER


def _add(hub: Hub, numbers: range) -> None:
    queries = WORKLOADS["a"].queries
    hub.sql(";".join(f"CREATE PIPELINE p{n} INTO out AS {queries[n].spark}" for n in numbers))


def _settled(hub: Hub, work: Path, files: list[Path], rows: int) -> tuple[int, int]:
    """Let files appear one by one; then the memory of Python and of the JVM's heap."""
    stream = hub.streams["s"]
    for number, file in enumerate(files):
        link(work / "in", [file])
        while stream.status().rows < rows - (len(files) - 1 - number) * ROWS:
            time.sleep(0.05)
    jvm = hub.spark._jvm
    assert jvm is not None
    runtime = jvm.java.lang.Runtime.getRuntime()
    for _ in range(3):
        jvm.java.lang.System.gc()
        time.sleep(0.3)
    return python_memory(os.getpid()), int(runtime.totalMemory() - runtime.freeMemory())


def _state(hub: Hub) -> int:
    return sum(pipeline.status().state_bytes for pipeline in hub.pipelines.values())
