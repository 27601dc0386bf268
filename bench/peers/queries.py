"""One continuous query in the three dialects that the systems read: Spark (also headrace), Flink, DuckDB.

Every query reads the table `s`. A windowed one has the columns `started`, then its keys, then its aggregates; all
systems name and order them in the same way, so that their outputs can be compared. Doubles in the input have three
decimals, so their sums are compared as decimals with three, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# What a column of an output is compared as.
Kind = Literal["time", "text", "flag", "whole", "decimal"]
DUCKDB_TYPES: dict[Kind, str] = {
    "time": "TIMESTAMP",
    "text": "VARCHAR",
    "flag": "BOOLEAN",  # as a text it is TRUE in Flink and true elsewhere
    "whole": "BIGINT",
    "decimal": "DECIMAL(28, 3)",
}


@dataclass(frozen=True, slots=True)
class Query:
    """A query: its text in each dialect, the input columns that it needs, and the columns of its output.

    `closes_after` is the SQL (DuckDB's, over the output) of the time at which a row is final, None for rows that are
    final at once.
    """

    name: str
    spark: str
    flink: str
    duckdb: str
    needs: tuple[str, ...]
    output: tuple[tuple[str, Kind], ...]
    closes_after: str | None = None
    family: Family | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """What a windowed aggregate shares with others (window and keys), and what is its own."""

    seconds: int
    keys: tuple[str, ...]
    where: str = field(compare=False, hash=False)
    aggregates: tuple[tuple[str, str, Kind], ...] = field(compare=False, hash=False)


def windowed(
    name: str,
    *,
    seconds: int,
    keys: tuple[tuple[str, Kind], ...],
    aggregates: tuple[tuple[str, str, Kind], ...],
    where: str,
    time: str = "ts",
    needs: tuple[str, ...],
) -> Query:
    """Aggregates by tumbling windows and keys. `aggregates` are (name, SQL, kind), `where` is SQL; names in them that
    need quotes in some dialect stand in double quotes."""
    names = tuple(key for key, _ in keys)
    shown = ", ".join(f'{sql} AS "{column}"' for column, sql, _ in aggregates)
    quoted = ", ".join(f'"{key}"' for key in names)
    duckdb = (
        f'SELECT time_bucket(INTERVAL {seconds} SECONDS, "{time}") AS started, {quoted}, {shown} '
        f"FROM s WHERE {where} GROUP BY ALL"
    )
    spark = (
        f"SELECT window.start AS started, {quoted}, {shown} FROM s WHERE {where} "
        f"GROUP BY window({time}, '{seconds} seconds'), {quoted}"
    )
    flink = (
        f"SELECT window_start AS started, {quoted}, {shown} "
        f"FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(\"{time}\"), INTERVAL '{seconds}' SECOND)) "
        f"WHERE {where} GROUP BY window_start, window_end, {quoted}"
    )
    return Query(
        name=name,
        spark=backquoted(spark),
        flink=backquoted(flink),
        duckdb=duckdb,
        needs=needs,
        output=(("started", "time"), *keys, *((column, kind) for column, _, kind in aggregates)),
        closes_after=f"started + INTERVAL {seconds} SECONDS",
        family=Family(seconds, names, where, aggregates),
    )


def stateless(name: str, *, columns: tuple[tuple[str, str, Kind], ...], where: str, needs: tuple[str, ...]) -> Query:
    """A filter and a projection with the same text in all dialects. `columns` are (name, SQL, kind)."""
    shown = ", ".join(f'{sql} AS "{column}"' for column, sql, _ in columns)
    text = f"SELECT {shown} FROM s WHERE {where}"
    output = tuple((column, kind) for column, _, kind in columns)
    return Query(name, backquoted(text), backquoted(text), text, needs, output)


def backquoted(text: str) -> str:
    """Spark and Flink quote names with backquotes; no text here has a double quote for another reason."""
    return text.replace('"', "`")


def one_pass(queries: list[Query], source: str, time: str) -> list[str]:
    """DuckDB statements that compute all queries: one per family, with filtered aggregates. `source` is a relation.

    A family's statement names the columns of member i `c{i}_{name}`; `c{i}_here` is the number of its rows.
    """
    families: dict[Family, list[int]] = {}
    alone: list[str] = []
    for number, query in enumerate(queries):
        if query.family is None:
            alone.append(query.duckdb.replace("FROM s ", f"FROM {source} ", 1))
        else:
            families.setdefault(query.family, []).append(number)
    found = []
    for shared, members in families.items():
        keys = ", ".join(f'"{key}"' for key in shared.keys)
        columns = []
        for number in members:
            own = queries[number].family
            assert own is not None
            columns.append(f"count(*) FILTER ({own.where}) AS c{number}_here")
            columns += [f"{sql} FILTER ({own.where}) AS c{number}_{name}" for name, sql, _ in own.aggregates]
        window = f'time_bucket(INTERVAL {shared.seconds} SECONDS, "{time}") AS started'
        found.append(f"SELECT {window}, {keys}, {', '.join(columns)} FROM {source} GROUP BY ALL")
    return found + alone
