"""A file system that dies at a chosen step: replaces `os` in `headrace.sinks.outputs` and `headrace.base.durable`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from headrace.base import durable
from headrace.sinks import outputs

_STEPS = ("replace", "rename", "unlink", "rmdir", "fsync", "listdir")


class Crash(BaseException):
    """Not an Exception, so that no error handling catches it."""


class DyingOs:
    """`os`, until step number `at`: every step that changes or syncs something counts twice, before and after it."""

    def __init__(self, at: int) -> None:
        self._left = at

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._counted(real) if name in _STEPS else real

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            self._tick()
            answer = real(*args, **kwargs)
            self._tick()
            return answer

        return step

    def _tick(self) -> None:
        if self._left == 0:
            raise Crash
        self._left -= 1


@contextmanager
def crashing_at(step: int) -> Iterator[None]:
    """A context in which the sinks' file operations die at `step`."""
    dying = DyingOs(step)
    with mock.patch.object(outputs, "os", dying), mock.patch.object(durable, "os", dying):
        yield
