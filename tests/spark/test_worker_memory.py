"""A worker returns freed memory once per plan, after the first tasks, and keeps what later tasks free."""

from __future__ import annotations

import ctypes

import pytest

from headrace.spark import worker_memory


def test_freed_memory_is_returned_once_after_the_first_tasks_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    returned: list[int] = []

    class Library:
        def malloc_trim(self, kept: int) -> int:
            returned.append(kept)
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    for _ in range(worker_memory.FIRST_TASKS - 1):
        worker_memory.return_after_first_tasks(1)
    assert not returned
    for _ in range(10):
        worker_memory.return_after_first_tasks(1)
    assert returned == [0]
    for _ in range(worker_memory.FIRST_TASKS):
        worker_memory.return_after_first_tasks(2)
    assert returned == [0, 0]


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    for _ in range(worker_memory.FIRST_TASKS):
        worker_memory.return_after_first_tasks(3)
