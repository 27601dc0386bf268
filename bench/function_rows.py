"""The rows of `bench.functions`: every type, no NULLs, and values that no function fails on."""

from __future__ import annotations

import base64
import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.model.schema import Field, Schema, parse_type

_WORDS = ("lorem", "ipsum", "dolor", "sit", "amet", "consectetur", "adipiscing", "elit", "sed", "do", "eiusmod")
_GREEK = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")
_START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)

SCHEMA = Schema(
    tuple(
        Field(name, parse_type(kind))
        for kind, names in {
            "BOOLEAN": "b b2", "TINYINT": "t t2", "SMALLINT": "s s2", "INT": "i j k", "BIGINT": "l l2 l0",
            "FLOAT": "f f2", "DOUBLE": "d d2 u", "DECIMAL(10,2)": "m m2", "BINARY": "r r2 tx", "DATE": "dt dt2",
            "TIMESTAMP": "ts ts2 ts0",
            "TIMESTAMP_NTZ": "n n2", "ARRAY<INT>": "a a2", "ARRAY<STRING>": "c", "ARRAY<FLOAT>": "v",
            "MAP<STRING, INT>": "mp mp2", "STRUCT<x: INT, y: STRING>": "st st2",
            "STRING": "x y js ja num sml dts tss tf url hx b64 b32 enc kv",
        }.items()
        for name in names.split()
    )
)  # fmt: skip


def table(rows: int) -> pa.Table:
    """`rows` rows of `SCHEMA`, the same every time."""
    random = np.random.default_rng(7)
    distinct = min(rows, 5000)  # of values that Python makes one by one

    def spread(values: list[Any], kind: str) -> pa.Array[Any]:
        picked = random.integers(0, len(values), rows)
        found: pa.Array[Any] = pa.array(values, parse_type(kind).arrow).take(picked)
        return found

    def whole(low: int, high: int, kind: str) -> pa.Array[Any]:
        return pa.array(random.integers(low, high, rows), parse_type(kind).arrow)

    def words(count: int) -> str:
        return " ".join(_WORDS[w] for w in random.integers(0, len(_WORDS), count))

    def several(kind: str, make: Any) -> pa.Array[Any]:
        return spread([make() for _ in range(distinct)], kind)

    def moment() -> dt.datetime:
        return _START + dt.timedelta(
            seconds=int(random.integers(0, 30_000_000)), microseconds=int(random.integers(10**6))
        )

    def number() -> int:
        return int(random.integers(1, 1000))

    columns: dict[str, pa.Array[Any]] = {}
    for field in SCHEMA.fields:
        name, kind = field.name, field.type.ddl
        if kind in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
            high = {"TINYINT": 50, "SMALLINT": 100, "INT": 1000, "BIGINT": 2_000_000_000}[kind]
            columns[name] = whole(1, 12 if name == "k" else 100 if name == "l0" else high, kind)
        elif kind in ("FLOAT", "DOUBLE"):
            low, top = (-0.9, 0.9) if name == "u" else (1.0, 100.0 if name.endswith("2") else 1000.0)
            columns[name] = pa.array(np.round(random.uniform(low, top, rows), 4), field.type.arrow)
        elif kind == "BOOLEAN":
            columns[name] = pa.array(random.integers(0, 2, rows).astype(bool))
    columns |= {
        name: several(kind, make)
        for name, kind, make in (
            ("m", "DECIMAL(10,2)", lambda: Decimal(number()) / 4),
            ("m2", "DECIMAL(10,2)", lambda: Decimal(number() % 100 + 1) / 4),
            *((n, "BINARY", lambda: random.bytes(16)) for n in ("r", "r2")),
            ("tx", "BINARY", lambda: words(2).encode()),
            *((n, "DATE", lambda: moment().date()) for n in ("dt", "dt2")),
            *((n, "TIMESTAMP", moment) for n in ("ts", "ts2")),
            ("ts0", "TIMESTAMP", lambda: dt.datetime.fromtimestamp(number() / 10, dt.UTC)),
            *((n, "TIMESTAMP_NTZ", lambda: moment().replace(tzinfo=None)) for n in ("n", "n2")),
            *((n, "ARRAY<INT>", lambda: [number() for _ in range(5)]) for n in ("a", "a2")),
            ("c", "ARRAY<STRING>", lambda: words(4).split()),
            ("v", "ARRAY<FLOAT>", lambda: [number() / 8 for _ in range(8)]),
            *((n, "MAP<STRING, INT>", lambda: [(g, number()) for g in _GREEK[:3]]) for n in ("mp", "mp2")),
            *((n, "STRUCT<x: INT, y: STRING>", lambda: {"x": number(), "y": words(1)}) for n in ("st", "st2")),
            ("x", "STRING", lambda: words(4)),
            ("y", "STRING", lambda: _GREEK[number() % 8]),
            ("js", "STRING", lambda: f'{{"a":{number()},"b":"{words(2)}","c":[1,2,{{"d":{number()}}}]}}'),
            ("ja", "STRING", lambda: f"[{number()},{number()},3]"),
            ("num", "STRING", lambda: str(number())),
            ("sml", "STRING", lambda: str(number() % 100)),
            ("dts", "STRING", lambda: moment().strftime("%Y-%m-%d")),
            ("tss", "STRING", lambda: moment().strftime("%Y-%m-%d %H:%M:%S")),
            ("tf", "STRING", lambda: "true" if number() % 2 else "false"),
            ("url", "STRING", lambda: f"https://host{number()}.example.com/a/b?q={number()}&r=x#top"),
            ("hx", "STRING", lambda: random.bytes(8).hex()),
            ("b64", "STRING", lambda: base64.b64encode(random.bytes(12)).decode()),
            ("b32", "STRING", lambda: base64.b32encode(random.bytes(10)).decode()),
            ("enc", "STRING", lambda: words(2).replace(" ", "+") + "%C3%A9"),
            ("kv", "STRING", lambda: f"a:{number()},b:{number()}"),
        )
    }
    return pa.table([columns[f.name] for f in SCHEMA.fields], schema=SCHEMA.arrow)
