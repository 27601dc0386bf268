"""What a slow pipeline on the dedicated host costs its neighbours: four windowed pipelines on the shared host, alone,
and beside one whose commits wait two seconds each, with `backpressure` 'drop' and 'spill'. The clock starts when the
slow pipeline has committed its first batch: how long a query takes to start is not the question here.

The slow pipeline waits in the driver, as for a slow sink, so it holds no task slot. A function that sleeps in a task
would hold one: that is a question of how many slots there are, not of backpressure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headrace
from bench import feed
from bench.streaming import LIMIT_SECONDS
from headrace.spark.dedicated_committer import DedicatedCommitter
from headrace.spark.session import Engine

COMMIT_SECONDS = 2.0
NEIGHBOURS = 4
VARIANTS = ("alone", "drop", "spill")
_SLOW = (
    "CREATE PIPELINE slow INTO out WITH (host = 'dedicated', backpressure = '{}', feed_limit = '{}') AS "
    "SELECT ts, user, value FROM s"
)
# With 'drop' the feed is full after the first epochs. With 'spill' it never is.
_LIMITS = {"drop": "16MB", "spill": "4GB"}


@contextmanager
def slow_commits() -> Iterator[None]:
    """Commits on the dedicated host wait, meanwhile."""
    quick = DedicatedCommitter.commit

    def slow(committer: DedicatedCommitter, *arguments: Any) -> None:
        time.sleep(COMMIT_SECONDS)
        quick(committer, *arguments)

    DedicatedCommitter.commit = slow  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        DedicatedCommitter.commit = quick  # type: ignore[method-assign]


def seconds_beside(
    engine: Engine, work: Path, variant: str, selects: Sequence[str], files: Sequence[Path], warm: int, rows: int
) -> tuple[float, int]:
    """How long the neighbours take for all files but the first `warm` ones, and how many rows wait for the slow
    pipeline or were dropped by then. `rows` are those of a file."""
    inbox = work / "in"
    inbox.mkdir(parents=True)
    with slow_commits(), headrace.connect(work / "state", spark=engine.spark) as hub:
        made = [f"CREATE PIPELINE n{i} INTO out AS {select}" for i, select in enumerate(selects)]
        if variant != "alone":
            made.append(_SLOW.format(variant, _LIMITS[variant]))
        feed.give(inbox, files[:warm])
        size = max(path.stat().st_size for path in files) * 4
        hub.sql(
            ";".join(
                [
                    feed.declaration(inbox, max_epoch_bytes=str(size)),
                    "CREATE SINK out WITH (type = 'noop')",
                    *made,
                ]
            )
        )
        stream = hub.streams["s"]
        _wait(lambda: stream.status().rows >= rows * warm)
        if variant != "alone":
            _wait(lambda: hub.pipelines["slow"].status().rows_out > 0)
        began = time.monotonic()
        feed.give(inbox, files[warm:])
        _wait(lambda: stream.status().rows >= rows * len(files))
        took = time.monotonic() - began
        if variant == "alone":
            return took, 0
        status = hub.pipelines["slow"].status()
        assert status.state == "running", status.error
        behind = status.waiting_rows + status.dropped_rows
        assert behind, "the pipeline is not slow"
        hub.sql("DROP PIPELINE slow")
        return took, behind


def _wait(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not fact():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done after {LIMIT_SECONDS:g} s")
        time.sleep(0.02)
