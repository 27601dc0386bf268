"""Stopping an embedded session whose JVM does not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from headrace.spark import session
from headrace.spark.session import Engine


class Updates:
    """A server of accumulator updates that another thread has closed."""

    asked = 0

    def shutdown(self) -> None:
        self.asked += 1
        raise OSError(9, "Bad file descriptor")


def test_a_session_stops_although_its_server_of_updates_is_being_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    shut_down: list[Any] = []
    monkeypatch.setattr(session, "_shut_down", shut_down.append)
    updates, gateway = Updates(), object()
    context = SimpleNamespace(_gateway=gateway, _accumulatorServer=updates)
    Engine(cast(SparkSession, SimpleNamespace(sparkContext=context, stop=lambda: None)), owned=True).stop()
    assert (shut_down, updates.asked) == ([gateway], 1)
