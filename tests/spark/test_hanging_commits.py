"""Spark stops a query only when its streaming thread returns, so that thread must not wait for a commit that hangs."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import StreamFailed
from headrace.spark import query as query_module
from headrace.spark.query import StreamQuery


@pytest.fixture
def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(query_module, "sync_epoch", lambda checkpoint, epoch: None)
    monkeypatch.setattr(query_module, "PLANNER_SECONDS", 0.1)
    monkeypatch.setattr(query_module, "HANG_SECONDS", 0.3)
    found: Any = StreamQuery.__new__(StreamQuery)
    found._over, found._name, found._members, found._checkpoint = False, "s", list, tmp_path
    found._let_go, found._planner = Future(), lambda: None
    found._queries = SimpleNamespace(cancel=lambda: None)
    return found


def test_stopping_a_query_whose_commit_hangs_lets_spark_s_thread_go(query: Any) -> None:
    entered, answers, over = threading.Event(), threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def hangs(*given: object) -> None:
        entered.set()
        answers.wait(60)

    def stream() -> None:
        try:
            query._commit(SimpleNamespace(collect=list), 0)
        except BaseException as problem:
            raised.append(problem)
        over.set()

    query._committer = SimpleNamespace(commit=hangs)
    query._query = SimpleNamespace(name="s", stop=lambda: over.wait(60))
    query._watch = threading.Thread(target=stream)
    query._watch.start()
    assert entered.wait(30)
    query.stop()
    assert over.is_set()
    assert not answers.is_set()
    assert isinstance(raised[0], StreamFailed)
    answers.set()


@pytest.mark.parametrize("problem", [StreamFailed("no"), TimeoutError("no"), None])
def test_a_commit_that_ends_has_its_own_result(query: Any, problem: Exception | None) -> None:
    def commit(*given: object) -> None:
        if problem is not None:
            raise problem

    query._committer = SimpleNamespace(commit=commit)
    if problem is None:
        query._commit(SimpleNamespace(collect=list), 0)
    else:
        with pytest.raises(type(problem)) as caught:
            query._commit(SimpleNamespace(collect=list), 0)
        assert caught.value is problem
