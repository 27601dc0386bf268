"""Hubs without Spark whose sinks hang: queries that are abandoned when their commit hangs, as Spark's are."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.bridge.messages import Row
from headrace.errors import SinkFailed
from headrace.sinks.file_sink import FileSink
from headrace.sinks.sink_kind import SinkKey, Staged
from headrace.spark.committer import EpochCommitter
from headrace.stream.host import QueryRequest
from tests.shared.mini import Checkpoint, MiniQuery
from tests.shared.running import RunningQueries

STOP_SECONDS = 0.3


class Killed(BaseException):
    """The process of a sink that hung is gone."""


class Unlocked:
    """Commits an epoch while other queries may run tasks."""

    def __init__(self, committer: EpochCommitter, one_task: threading.Lock) -> None:
        self._committer, self._one_task = committer, one_task

    def commit(self, rows: list[Row]) -> None:
        self._one_task.release()
        try:
            self._committer.commit(rows)
        finally:
            self._one_task.acquire()


class Abandoned(MiniQuery):
    """A query that is abandoned when its commit hangs, as Spark's are."""

    def __init__(self, checkpoint: Checkpoint, request: QueryRequest, one_task: threading.Lock) -> None:
        super().__init__(checkpoint, request)
        committer: Any = Unlocked(self.committer, one_task)
        self.committer, self._one_task = committer, one_task

    def step(self) -> bool:
        with self._one_task:
            return super().step()

    def stop(self) -> None:
        self.over = True
        if self.busy.acquire(timeout=STOP_SECONDS):
            self.busy.release()


class Queries(RunningQueries):
    """The queries do not wait for each other."""

    def launch(self, request: QueryRequest) -> MiniQuery:
        self.launched.append(request.stream)
        checkpoint = self._checkpoints.setdefault(request.options["checkpoint"], Checkpoint())
        query = Abandoned(checkpoint, request, self._one_task)
        threading.Thread(target=self._loop, args=(query,), daemon=True).start()
        return query

    def _loop(self, query: MiniQuery) -> None:
        while not query.over:
            try:
                with query.busy:
                    worked = not query.over and query.step()
            except (Exception, Killed):
                return  # it was abandoned
            if not worked:
                time.sleep(0.005)


class Sink:
    """The file sink `name` hangs in one of its methods until `answers` is set, or refuses it as long as `refuses` is
    set. What hangs when `kill` is called never does anything."""

    def __init__(self, patch: pytest.MonkeyPatch, method: str, name: str = "h") -> None:
        self.answers, self.entered, self.returned = threading.Event(), threading.Event(), threading.Event()
        self.refuses = threading.Event()
        given: Callable[..., Any] = getattr(FileSink, method)

        def hanging(sink: FileSink, key: SinkKey, *rest: list[Staged]) -> Any:
            if sink.paths.sink != name:
                return given(sink, key, *rest)
            if self.refuses.is_set():
                raise SinkFailed("it refuses")
            hangs = not self.answers.is_set()
            answers = self.answers
            if hangs:
                self.entered.set()
                answers.wait(60)
                if answers is not self.answers:
                    raise Killed
            try:
                return given(sink, key, *rest)
            finally:
                if hangs:
                    self.returned.set()

        patch.setattr(FileSink, method, hanging)

    def kill(self) -> None:
        """End the process: calls that hang never return to their sink. The sink answers from now on."""
        old, self.answers = self.answers, threading.Event()
        self.answers.set()
        old.set()


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)


def lines(directory: Path) -> list[tuple[str, int]]:
    """The rows in the files of a sink."""
    rows = [json.loads(line) for part in directory.glob("part-*") for line in part.read_text().splitlines()]
    return sorted((row["k"], row["v"]) for row in rows)
