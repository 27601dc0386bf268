"""Ring 0 makes no Python objects per event: a tracer sees the same work for a hundred times as many rows.

Rows live in Arrow buffers from the decoder to the payload; Python only sees batches. So the number of Python calls and
of Python objects that a task makes follows the batches, not the rows.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType

import pyarrow as pa
import pytest

from headrace.bridge.reports import PlannedEpoch
from headrace.model.definitions import PipelineDef
from headrace.model.plan_version import PlanVersion
from headrace.model.program import Window
from headrace.ring0.task import run_task
from headrace.ring0.task_input import TaskInput
from tests.ring0.tasks import WORD, Chunks, N, at, counting, lines, stateless, stream

TUMBLE = Window("tumble", 10_000_000, 10_000_000)
PIPELINES: dict[str, list[PipelineDef]] = {
    "rows": [stateless(1, WORD, N, where=f"c{N} > 3")],
    "windows": [counting(1, WORD, window=TUMBLE)],
    "a family": [counting(1, WORD, window=TUMBLE), counting(2, WORD, window=TUMBLE, where=f"c{N} > 3")],
    "sessions": [counting(1, WORD, window=Window("session", 5_000_000, 5_000_000))],
}


def records(count: int) -> bytes:
    return lines(*({"word": f"w{i % 7}", "n": i, "ts": at(i % 60)} for i in range(count)))


def work(pipelines: list[PipelineDef], chunk: bytes) -> Callable[[], int]:
    plan = PlanVersion(3, stream(), tuple(pipelines))

    def run() -> int:
        given = TaskInput(plan, Chunks((chunk,)), 0, PlannedEpoch(7, 1, "checkpoint"))
        return sum(len(batch) for batch in run_task(given))

    return run


def traced(run: Callable[[], int]) -> tuple[int, int]:
    """How many Python and C calls `run` makes, and how many more Python objects there are at its worst moment; by a
    profiler that looks before and after each call, so that a list which lives for one call is seen too."""
    gc.collect()
    seen: Counter[str] = Counter()
    before = most = sys.getallocatedblocks()

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal most
        seen[event] += 1
        most = max(most, sys.getallocatedblocks())

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return seen["call"] + seen["c_call"], most - before


@pytest.mark.parametrize("name", PIPELINES)
def test_a_task_makes_no_python_objects_per_event(name: str) -> None:
    few, many = (work(PIPELINES[name], records(count)) for count in (500, 50_000))
    few()  # kernels, connections and caches are there now
    many()
    (few_calls, few_objects), (many_calls, many_objects) = traced(few), traced(many)
    # Of 49,500 rows more: a larger chunk is decoded in a few more pieces, that is all.
    assert many_calls - few_calls < 1000
    assert many_objects - few_objects < 1000


def test_the_tracer_sees_a_list_of_the_rows() -> None:
    """The check itself: one call that makes an object per row, and drops them at once, is noticed."""
    values = pa.array(range(10_000, 60_000))
    assert traced(lambda: len(values.to_pylist()))[1] > 49_000
