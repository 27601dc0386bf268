"""Static tables that pipelines keep for a while: names and locks. A session with given answers takes Spark's place."""

from __future__ import annotations

import threading
from typing import Any

from headrace.model.program import SparkQuery
from headrace.model.schema import Schema
from headrace.spark.static_tables import StaticTables


class Session:
    """Keeps the names of views. Reading the table `slow` waits for `allowed`."""

    def __init__(self) -> None:
        self.views: list[str] = []
        self.reading, self.allowed = threading.Event(), threading.Event()
        self.catalog = self

    def sql(self, text: str) -> Session:
        if text.endswith("slow"):
            self.reading.set()
            assert self.allowed.wait(30)
        return self

    def localCheckpoint(self, eager: bool) -> Session:
        return self

    def createOrReplaceTempView(self, view: str) -> None:
        self.views.append(view)

    def dropTempView(self, view: str) -> None:
        self.views.remove(view)


def reading(name: str) -> SparkQuery:
    return SparkQuery("", "s", Schema(()), (), ((0, 1, name, ""),), refresh_us=3_600_000_000)


def test_two_hubs_on_one_session_keep_their_copies_apart() -> None:
    session: Any = Session()
    first, second = StaticTables(session), StaticTables(session)
    for tables in (first, second):
        for _ in range(2):
            tables.edits(1, reading("dim"))
    assert len(set(session.views)) == len(session.views) == 2, "each reads the table once, under a name of its own"
    first.forget({1})
    assert len(session.views) == 1
    assert second.edits(1, reading("dim"))[0][2] == f"`{session.views[0]}`"


def test_a_table_that_takes_long_to_read_holds_up_no_other() -> None:
    session: Any = Session()
    tables = StaticTables(session)
    slow = threading.Thread(target=tables.edits, args=(1, reading("slow")))
    slow.start()
    assert session.reading.wait(30)
    other = threading.Thread(target=tables.edits, args=(2, reading("dim")))
    other.start()
    other.join(30)
    assert not other.is_alive() and len(session.views) == 1
    session.allowed.set()
    slow.join(30)
    assert len(session.views) == 2
