"""The workloads that the systems are compared on: a table, and a list of queries of which the first N run.

- `a`: one family. Windows of a minute, 100 keys, three of twenty columns, a filter for each query.
- `b`: one family with many groups. 10,000 keys and windows of 40 seconds: four rows in a group.
- `c`: queries that differ: eight key sets, eight window sizes, ten columns, one in eight without state; 10,000 keys.
- `d`: the queries of Nexmark that join no streams, all at once (`bench/peers/nexmark.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.peers import nexmark
from bench.peers.queries import Kind, Query, stateless, windowed

MOST = 1000  # queries of a workload
KEY_KINDS: dict[str, Kind] = {"user": "text", "region": "text", "level": "whole", "ok": "flag"}
KEY_SETS = (
    ("user",), ("region",), ("level",), ("region", "level"), ("user", "level"), ("user", "region"),
    ("region", "ok"), ("user", "ok"),
)  # fmt: skip
SECONDS = (5, 10, 15, 20, 30, 40, 50, 60)
VALUES = ("value", "seq", *(f"x{n}" for n in range(8)))
# Name and type of every column of the rows of bench/feed.py.
FEED_COLUMNS = (
    ("ts", "TIMESTAMP"), ("user", "STRING"), ("value", "BIGINT"), ("region", "STRING"), ("ok", "BOOLEAN"),
    ("seq", "BIGINT"), ("level", "INT"), ("agent", "STRING"), *((f"x{n}", "DOUBLE") for n in range(12)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Workload:
    """A table with its event time, and its queries. `keys` is the number of users in the rows of bench/feed.py."""

    name: str
    title: str
    columns: tuple[tuple[str, str], ...]
    time: str
    keys: int
    queries: tuple[Query, ...]

    def first(self, count: int) -> list[Query]:
        return list(self.queries[:count])

    def needed(self, count: int) -> list[tuple[str, str]]:
        """The columns that the first `count` queries need, the event time among them."""
        wanted = {self.time, *(name for query in self.first(count) for name in query.needs)}
        return [(name, kind) for name, kind in self.columns if name in wanted]


def one_family(number: int, seconds: int) -> Query:
    """No two of the first 300 have the same filter, and each of them keeps less than the one before."""
    return windowed(
        f"p{number}",
        seconds=seconds,
        keys=(("user", "text"),),
        aggregates=(("n", "count(*)", "whole"), ("total", 'sum("value")', "whole")),
        where=f'"value" >= {number * 3 if number < 300 else number % 900}',
        needs=("user", "value"),
    )


def different(number: int) -> Query:
    """Keys, window, columns and filter differ from query to query; every eighth has no state."""
    column, other = VALUES[number % 10], VALUES[(number // 10 + number + 3) % 10]
    if number % 8 == 7:
        return stateless(
            f"p{number}",
            columns=(("u", '"user"', "text"), ("a", f'"{column}"', "decimal"), ("b", f'"{other}"', "decimal")),
            where=f'"{column}" > {900 + number % 50} AND "level" = {number % 5}',
            needs=("user", "level", column, other),
        )
    keys = KEY_SETS[(number + number // 8) % 8]
    return windowed(
        f"p{number}",
        seconds=SECONDS[(number * 3 + number // 8) % 8],
        keys=tuple((key, KEY_KINDS[key]) for key in keys),
        aggregates=(
            ("n", "count(*)", "whole"),
            ("total", f'sum("{column}")', "decimal"),
            ("top", f'max("{other}")', "decimal"),
        ),
        where=f'"{other}" >= {number % 900}',
        needs=(*keys, column, other),
    )


def _feed(name: str, title: str, keys: int, query: Callable[[int], Query]) -> Workload:
    return Workload(name, title, FEED_COLUMNS, "ts", keys, tuple(query(i) for i in range(MOST)))


WORKLOADS = {
    "a": _feed("a", "one family, 100 keys", 100, lambda i: one_family(i, 60)),
    "b": _feed("b", "one family, 10,000 keys, 4 rows per group", 10_000, lambda i: one_family(i, 40)),
    "c": _feed("c", "different pipelines, 10,000 keys", 10_000, different),
    "d": Workload("d", "Nexmark without joins", nexmark.COLUMNS, "date_time", 0, nexmark.QUERIES),
}
