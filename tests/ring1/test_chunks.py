"""Tables of many chunks: the groups of an epoch are found among the others, whatever their keys are."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal as D
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.exec.aggregates import schema_of
from headrace.model.program import Emit, Expression, Meaning, Ring1Program
from headrace.model.schema import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    Array,
    DataType,
    Decimal,
    Field,
    Struct,
)
from headrace.ring1 import chunks
from headrace.ring1.lane import advance
from headrace.ring1.lane_state import LaneHeader, LaneStep
from headrace.ring1.packed import PackedStore
from headrace.sql.rules.split_aggregates import PRESENCE
from tests.ring1.memory_store import MemoryStore
from tests.strategies import examples

(OTHER_NAN,) = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))
KINDS: dict[str, tuple[DataType, tuple[Any, ...]]] = {
    "bigint": (BIGINT, (0, -1, 2**62)),
    "double": (DOUBLE, (0.0, math.nan, OTHER_NAN, math.inf, 1.5)),
    "float": (FLOAT, (0.0, math.nan, OTHER_NAN, -1.5)),
    "string": (STRING, ("", "a", "ä")),
    "binary": (BINARY, (b"", b"\0")),
    "boolean": (BOOLEAN, (True, False)),
    "date": (DATE, (date(1970, 1, 1), date(1, 1, 1))),
    "timestamp": (TIMESTAMP, (datetime(2026, 1, 1, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC))),
    "decimal": (Decimal(20, 2), (D("1.00"), D("-7.25"))),
    "array": (Array(BIGINT), ([], [1], [1, 2])),
    "struct": (Struct((Field("a", BIGINT), Field("b", STRING))), ({"a": 1, "b": "x"}, {"a": 1, "b": None})),
}
Key = tuple[Any, ...]


def same(key: Key) -> str:
    """A name for a key under which all NaN are one, and all of UTC."""
    return repr(tuple(v.timestamp() if isinstance(v, datetime) else v for v in key))


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[DataType], list[list[Key]]]:
    """Types of keys, and the keys of the rows of some epochs."""
    chosen = [KINDS[name] for name in draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=2))]
    key = st.tuples(*(st.none() | st.sampled_from(values) for _, values in chosen))
    epochs = draw(st.lists(st.lists(key, max_size=8), min_size=1, max_size=4))
    return [kind for kind, _ in chosen], epochs


@pytest.mark.parametrize("emit", ["changes", "first"])
@settings(max_examples=examples(60))
@given(cases())
def test_an_epoch_emits_only_its_own_groups_whatever_the_keys_are(
    emit: Emit, case: tuple[list[DataType], list[list[Key]]]
) -> None:
    kinds, epochs = case
    keys = tuple(Field(f"key{i}", kind) for i, kind in enumerate(kinds))
    outputs = (*(Expression(k.name, k.type, f"k{i}") for i, k in enumerate(keys)), Expression("n", BIGINT, "p0"))
    program = Ring1Program(keys, None, (PRESENCE,), emit, None, outputs)
    schema, store = schema_of(program), MemoryStore()
    totals: dict[str, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "SMALL_CHUNK", 2)
        patch.setattr(chunks, "LARGE_CHUNK", 2)
        for rows in epochs:
            columns = [[row[i] for row in rows] for i in range(len(kinds))]
            arrays = [pa.array(c, f.type) for c, f in zip([*columns, [1] * len(rows)], schema, strict=True)]
            delta = pa.Table.from_arrays(arrays, schema=schema)
            outcome = advance(program, Meaning(), PackedStore(store), LaneStep(delta, None))
            known = set(totals)
            for row in rows:
                totals[same(row)] = totals.get(same(row), 0) + 1
            due = {same(row) for row in rows} - (known if emit == "first" else set())
            spoken = [] if outcome.output is None else [list(r.values()) for r in outcome.output.to_pylist()]
            assert sorted((same(tuple(key)), n) for *key, n in spoken) == sorted((name, totals[name]) for name in due)
    header = LaneHeader.decode(PackedStore(store).header())
    assert header.size.rows == len(totals)
