"""Forms of functions that are made of other functions, compared with Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError
from headrace.model.schema import parse_type
from tests.sql.functions.fuzz import session_for_fuzzing
from tests.sql.functions.harness import TIME_ZONE, Duck, Outcome, Spark, differences, plan_expressions

COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "i": ("INT", [1, 7, None, -8]),
    "l": ("BIGINT", [2**40, None, -(2**63), 3]),
    "s": ("STRING", ["x", None, "", "a-b"]),
    "c": ("ARRAY<STRING>", [["p", None, "q"], [None], [""], []]),
    "d": ("DOUBLE", [1.5, None, 0.1, -2.0]),
    "t": (
        "TIMESTAMP",
        [
            *(datetime(y, m, d, 6, 59, 59, 999999, UTC) for y, m, d in ((2026, 3, 8), (1950, 1, 1))),
            None,
            datetime(2026, 11, 1, 5, 30, tzinfo=UTC),
        ],
    ),
    "z": ("TIMESTAMP_NTZ", [datetime(1969, 12, 31, 23, 59), None, datetime(2026, 3, 8, 2, 30), datetime(1800, 5, 6)]),
    "f": ("FLOAT", [0.25, 1.5, None, -0.0]),
}
TEXTS = (
    "decode(i, 7, 'seven', NULL, 'none', 'other')", "decode(i, 7, 'seven')", "decode(i, 1.5, 1, 2L)",
    "decode(s, 'x', i, '', d)", "decode(i, 1, s, 1, 'never', NULL)",
    "concat_ws('-', s, c, 'z')", "concat_ws('-', c)", "concat_ws(s, c, c)", "concat_ws(',', d, c)",
    "concat_ws(NULL, c)", "concat_ws('-', s, CAST(NULL AS ARRAY<STRING>))",
    "concat(s, i, d)", "concat(d, f)", "length(d)", "upper(f)", "instr(d, '.')", "substring(d, 1, 2)",
    "time_bucket(INTERVAL 1 HOUR, t)", "time_bucket(INTERVAL '7:05' HOUR TO MINUTE, t)",
    "time_bucket(INTERVAL '0.3' SECOND, t)", "time_bucket(INTERVAL 7 DAYS, z)", "time_bucket(INTERVAL 36 HOURS, z)",
    "time_bucket(INTERVAL 5 HOURS, t, TIMESTAMP'2026-03-08 00:30:00')",
    "time_bucket(INTERVAL 5 HOURS, z, TIMESTAMP_NTZ'2026-03-08 00:30:00')",
    "i << 2", "i >> 1 + 1", "i >>> 1", "l << i", "l >> 3", "l >>> 60", "i & 1 << 3 | 2", "i << 31 << 1",
)  # fmt: skip


def compared(session: Any) -> list[str]:
    """The differences between the two engines, a line each."""
    kinds, names = tuple(kind for kind, _ in COLUMNS.values()), list(COLUMNS)
    table = pa.table({n: pa.array(values, parse_type(kind).arrow) for n, (kind, values) in COLUMNS.items()})
    session.conf.set("spark.sql.session.timeZone", TIME_ZONE)
    different, duck = [], Duck(table)
    found = Spark(session, table, kinds, names).evaluate(list(TEXTS))
    for text, planned, theirs in zip(TEXTS, plan_expressions(kinds, list(TEXTS), names), found, strict=True):
        if isinstance(planned, HeadraceError) or not isinstance(theirs, Outcome):
            different.append(f"{text}: {planned} here, {theirs} in Spark")
        else:
            different += [f"{text}: {line}" for line in differences(duck.evaluate(*planned), theirs, table)]
    return different


@pytest.mark.spark
def test_forms_made_of_other_functions_agree_with_spark(spark_of_the_run: Any) -> None:
    different = compared(session_for_fuzzing(spark_of_the_run))
    assert not different, "\n".join(different)


def test_unix_timestamp_without_arguments_is_the_clock_of_the_epoch() -> None:
    (planned,) = plan_expressions(("INT",), ["unix_timestamp()"])
    assert not isinstance(planned, HeadraceError)
    assert Duck(pa.table({"a": pa.array([1], pa.int32())})).evaluate(*planned).values == [1_700_000_000]
