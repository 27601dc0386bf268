"""Small random rows for a stream: NULLs, repeated keys, times within a few minutes."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.model.definitions import StreamDef
from headrace.model.schema import NESTED, Array, DataType, Map, Struct, nested_fields
from headrace.model.schema import Decimal as DecimalType

START = dt.datetime(2024, 3, 1, 9, 58, 0)


def rows_of(stream: StreamDef, count: int, seed: int) -> pa.Table:
    """`count` rows in the shape that Ring 0 sees: c0, c1, ... and the event time `_t` in microseconds."""
    chance = random.Random(seed)
    columns: dict[str, pa.Array[Any]] = {}
    for i, field in enumerate(stream.schema):
        nulls = 0.0 if i == stream.event_time else 0.15
        values = [None if chance.random() < nulls else value(field.type, chance) for _ in range(count)]
        columns[f"c{i}"] = pa.array(values, field.type.arrow)
    times = (
        columns[f"c{stream.event_time}"].cast(pa.int64())
        if stream.event_time is not None
        else pa.nulls(count, pa.int64())
    )
    return pa.table({**columns, **fields_of(stream, columns), "_t": times})


def fields_of(stream: StreamDef, columns: dict[str, pa.Array[Any]]) -> dict[str, pa.Array[Any]]:
    """The fields of STRUCT columns, as Ring 0 sees them."""
    found: dict[str, pa.Array[Any]] = {}
    for place, field in enumerate(nested_fields(stream.schema)):
        values = columns[f"c{field.column}"].to_pylist()
        for name in field.path:
            values = [None if v is None else v[name] for v in values]
        found[f"c{NESTED + place}"] = pa.array(values, field.type.arrow)
    return found


def value(kind: DataType, chance: random.Random) -> Any:
    """A value that is likely to meet others of its kind."""
    if isinstance(kind, Struct):
        return {f.name: value(f.type, chance) for f in kind.fields}
    if isinstance(kind, Array):
        return [value(kind.element, chance) for _ in range(chance.randrange(3))]
    if isinstance(kind, Map):
        return [(name, value(kind.value, chance)) for name in chance.sample(["a", "b", "c"], chance.randrange(3))]
    if isinstance(kind, DecimalType):
        return Decimal(chance.randrange(-50, 51)).scaleb(-kind.scale)
    moment = START + dt.timedelta(seconds=chance.randrange(0, 900), microseconds=chance.choice([0, 0, 250_000]))
    makers: dict[str, Callable[[], Any]] = {
        "BOOLEAN": lambda: chance.random() < 0.5,
        "TINYINT": lambda: chance.randrange(-5, 6),
        "SMALLINT": lambda: chance.randrange(-9, 10),
        "INT": lambda: chance.randrange(-9, 10),
        "BIGINT": lambda: chance.choice([0, 1, 2, 3, -4, 10**10]),
        "FLOAT": lambda: chance.choice([0.0, 0.25, -1.5, 2.0, 1e6]),
        "DOUBLE": lambda: chance.choice([0.0, 0.5, -1.25, 3.0, 25.5, 31.0, 1e3]),
        "STRING": lambda: chance.choice(["", "a", "b", "c", "abc", "x", "zz", "12"]),
        "BINARY": lambda: chance.choice([b"", b"ab", b"\xff"]),
        "DATE": lambda: dt.date(2024, 1, 1) + dt.timedelta(days=chance.randrange(0, 400)),
        "TIMESTAMP": lambda: moment.replace(tzinfo=dt.UTC),
        "TIMESTAMP_NTZ": lambda: moment,
    }
    return makers[kind.ddl]()
