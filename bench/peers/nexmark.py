"""Nexmark's queries that join no streams, over one stream of its events: persons, auctions and bids, 1 : 3 : 46.

The events are those of `bench/peers/events.py`. Left out: q3, q4, q6, q8, q9, q13, q20 and q23 (joins), q12 (processing
time), q15 and q16 (distinct counts by day, which Spark's streams refuse), q18 and q19 (row_number). Of q5 and q7 the
aggregate runs, without the join with its own maximum; q17 has windows of ten seconds instead of days, so that every
system can append its rows to files.
"""

from __future__ import annotations

from bench.peers.queries import Kind, Query, backquoted

COLUMNS = (
    ("event_type", "INT"), ("date_time", "TIMESTAMP"), ("auction", "BIGINT"), ("bidder", "BIGINT"),
    ("price", "BIGINT"), ("channel", "STRING"), ("url", "STRING"), ("extra", "STRING"), ("id", "BIGINT"),
    ("name", "STRING"), ("email", "STRING"), ("city", "STRING"), ("state", "STRING"), ("item", "STRING"),
    ("description", "STRING"), ("initial_bid", "BIGINT"), ("reserve", "BIGINT"), ("expires", "TIMESTAMP"),
    ("seller", "BIGINT"), ("category", "BIGINT"),
)  # fmt: skip

_BID: tuple[tuple[str, Kind], ...] = (
    ("auction", "whole"), ("bidder", "whole"), ("price", "whole"), ("date_time", "time"), ("extra", "text"),
)  # fmt: skip
_EURO: tuple[tuple[str, Kind], ...] = tuple((name, "decimal" if name == "price" else kind) for name, kind in _BID)


def _plain(
    name: str,
    select: str,
    output: tuple[tuple[str, Kind], ...],
    needs: tuple[str, ...],
    also: str = "",
    flink: str = "",
    duckdb: str = "",
) -> Query:
    """A query without state. `flink` and `duckdb` are their select lists where they differ."""

    def text(selected: str) -> str:
        return f'SELECT {selected} FROM s WHERE "event_type" = 2{also}'

    return Query(
        name=name,
        spark=backquoted(text(select)),
        flink=backquoted(text(flink or select)),
        duckdb=text(duckdb or select),
        needs=("event_type", *needs),
        output=output,
    )


def _by_window(
    name: str, spark: str, flink: str, duckdb: str, select: str, keys: str, closes: str,
    output: tuple[tuple[str, Kind], ...], needs: tuple[str, ...],
) -> Query:  # fmt: skip
    """A query with a window: `spark` and `duckdb` are its expressions, `flink` its table function."""
    comma = f", {keys}" if keys else ""
    bids = 'FROM s WHERE "event_type" = 2'
    kind = spark.partition("(")[0]
    return Query(
        name=name,
        spark=f"SELECT {kind}.start AS started{comma}, {select} {bids} GROUP BY {spark}{comma}".replace('"', "`"),
        flink=backquoted(
            f'SELECT window_start AS started{comma}, {select} FROM TABLE({flink}) WHERE "event_type" = 2 '
            f"GROUP BY window_start, window_end{comma}"
        ),
        duckdb=duckdb,
        needs=("event_type", *needs),
        output=(("started", "time"), *output),
        closes_after=closes,
    )


_BIDDING = ("auction", "bidder", "price", "date_time", "extra")
_SELECTED = '"auction", "bidder", "price", "date_time", "extra"'
_IN_EURO = '"auction", "bidder", 0.908 * "price" AS "price", "date_time", "extra"'
_HOURS = (
    'CASE WHEN hour("date_time") >= 8 AND hour("date_time") <= 18 THEN \'dayTime\' '
    'WHEN hour("date_time") <= 6 OR hour("date_time") >= 20 THEN \'nightTime\' ELSE \'otherTime\' END AS "day_part"'
)
_COUNTED = 'length("extra") - length(replace("extra", \'c\', \'\')) AS "c_count"'
_RANKED = (
    'count(*) AS "bids", count(*) FILTER (WHERE "price" < 10000) AS "low", '
    'count(*) FILTER (WHERE "price" >= 10000 AND "price" < 1000000) AS "middle", '
    'count(*) FILTER (WHERE "price" >= 1000000) AS "high", '
    'min("price") AS "least", max("price") AS "most", avg(CAST("price" AS DOUBLE)) AS "mean", sum("price") AS "total"'
)
_CHANNEL = (
    "CASE WHEN lower(\"channel\") = 'apple' THEN '0' WHEN lower(\"channel\") = 'google' THEN '1' "
    "WHEN lower(\"channel\") = 'facebook' THEN '2' WHEN lower(\"channel\") = 'baidu' THEN '3' "
    'ELSE regexp_extract("url", \'channel_id=([^&]*)\', 1) END AS "channel_id"'
)
_TUMBLE = "TUMBLE(TABLE s, DESCRIPTOR(\"date_time\"), INTERVAL '10' SECOND)"
_BUCKET = 'time_bucket(INTERVAL 10 SECONDS, "date_time")'
_BIDS = 'FROM s WHERE "event_type" = 2'

QUERIES: tuple[Query, ...] = (
    _plain("q0", _SELECTED, _BID, _BIDDING),
    _plain("q1", _IN_EURO, _EURO, _BIDDING),
    _plain("q2", '"auction", "price"', (("auction", "whole"), ("price", "whole")), ("auction", "price"),
           also=' AND "auction" % 123 = 0'),
    _by_window(
        "q5", "window(date_time, '10 seconds', '2 seconds')",
        "HOP(TABLE s, DESCRIPTOR(\"date_time\"), INTERVAL '2' SECOND, INTERVAL '10' SECOND)",
        "SELECT started, auction, count(*) AS bids FROM (SELECT "
        "unnest(range(time_bucket(INTERVAL 2 SECONDS, date_time) - INTERVAL 8 SECONDS, "
        "time_bucket(INTERVAL 2 SECONDS, date_time) + INTERVAL 1 SECOND, INTERVAL 2 SECONDS)) "
        f"AS started, auction {_BIDS}) GROUP BY ALL",
        'count(*) AS "bids"', '"auction"', "started + INTERVAL 10 SECONDS",
        (("auction", "whole"), ("bids", "whole")), ("auction",),
    ),
    _by_window(
        "q7", "window(date_time, '10 seconds')", _TUMBLE,
        f'SELECT {_BUCKET} AS started, max("price") AS top {_BIDS} GROUP BY ALL',
        'max("price") AS "top"', "", "started + INTERVAL 10 SECONDS", (("top", "whole"),), ("price",),
    ),
    _plain("q10", _SELECTED + ", date_format(\"date_time\", 'yyyy-MM-dd') AS \"d\", "
           "date_format(\"date_time\", 'HH:mm') AS \"hm\"",
           (*_BID, ("d", "text"), ("hm", "text")), _BIDDING,
           duckdb=_SELECTED + ", strftime(\"date_time\", '%Y-%m-%d') AS \"d\", "
           "strftime(\"date_time\", '%H:%M') AS \"hm\""),
    _by_window(
        "q11", "session_window(date_time, '10 seconds')",
        "SESSION(TABLE s PARTITION BY \"bidder\", DESCRIPTOR(\"date_time\"), INTERVAL '10' SECOND)",
        "SELECT min(date_time) AS started, bidder, count(*) AS bids, max(date_time) AS ended FROM (SELECT *, "
        "sum(fresh) OVER (PARTITION BY bidder ORDER BY date_time ROWS UNBOUNDED PRECEDING) AS session FROM (SELECT "
        "bidder, date_time, CASE WHEN date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time) <= "
        f"INTERVAL 10 SECONDS THEN 0 ELSE 1 END AS fresh {_BIDS})) GROUP BY bidder, session",
        'count(*) AS "bids", max("date_time") AS "ended"', '"bidder"', "ended + INTERVAL 10 SECONDS",
        (("bidder", "whole"), ("bids", "whole"), ("ended", "time")), ("bidder",),
    ),
    _plain("q14", f"{_IN_EURO}, {_HOURS}, {_COUNTED}", (*_EURO, ("day_part", "text"), ("c_count", "whole")), _BIDDING,
           also=' AND 0.908 * "price" > 1000000 AND 0.908 * "price" < 50000000',
           flink=f"{_IN_EURO}, {_HOURS}, {_COUNTED}".replace("length(", "char_length(")),
    _by_window(
        "q17", "window(date_time, '10 seconds')", _TUMBLE,
        f'SELECT {_BUCKET} AS started, "auction", {_RANKED} {_BIDS} GROUP BY ALL',
        _RANKED, '"auction"', "started + INTERVAL 10 SECONDS",
        (("auction", "whole"), *((name, "whole") for name in ("bids", "low", "middle", "high", "least", "most")),
         ("mean", "decimal"), ("total", "whole")), ("auction", "price"),
    ),
    _plain("q21", f'"auction", "bidder", "price", "channel", {_CHANNEL}',
           (("auction", "whole"), ("bidder", "whole"), ("price", "whole"), ("channel", "text"), ("channel_id", "text")),
           ("auction", "bidder", "price", "channel", "url"),
           also=" AND (\"url\" LIKE '%channel_id=%' OR "
           "lower(\"channel\") IN ('apple', 'google', 'facebook', 'baidu'))"),
    _plain("q22", '"auction", "bidder", "price", "channel", split_part("url", \'/\', 4) AS "dir1", '
           'split_part("url", \'/\', 5) AS "dir2", split_part("url", \'/\', 6) AS "dir3"',
           (("auction", "whole"), ("bidder", "whole"), ("price", "whole"), ("channel", "text"), ("dir1", "text"),
            ("dir2", "text"), ("dir3", "text")),
           ("auction", "bidder", "price", "channel", "url"),
           flink='"auction", "bidder", "price", "channel", split_index("url", \'/\', 3) AS "dir1", '
           'split_index("url", \'/\', 4) AS "dir2", split_index("url", \'/\', 5) AS "dir3"'),
)  # fmt: skip
