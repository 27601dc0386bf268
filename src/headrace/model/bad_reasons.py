"""Why input is bad. The words are counted, stored in dead letters and read by users, so they never change.

docs/formats.md explains each. What is counted differs: a record, a value (one row and one column), or a row.
"""

from __future__ import annotations

from collections.abc import Mapping

STRUCTURE_REASONS = (
    "bad_json", "not_an_object", "too_deep", "open_quote", "bad_quote", "field_count", "record_too_long", "bad_frame",
    "bad_avro", "unknown_schema",
)  # fmt: skip
VALUE_REASONS = (
    "bad_boolean", "bad_integer", "out_of_range", "bad_number", "bad_decimal", "bad_date", "bad_timestamp",
    "bad_binary", "bad_utf8", "bad_nested", "bad_computed",
)  # fmt: skip
REASONS = (*STRUCTURE_REASONS, *VALUE_REASONS)


def counted(bad: Mapping[str, int]) -> str:
    """Counts by reason in words, each with what it counts. Empty without counts.

    >>> counted({"bad_timestamp": 1200, "bad_json": 2, "null_event_time": 3})
    'bad records: bad_json 2; bad values: bad_timestamp 1,200; bad rows: null_event_time 3'
    """
    units: dict[str, list[str]] = {"records": [], "values": [], "rows": []}
    for reason, count in sorted(bad.items()):
        unit = "records" if reason in STRUCTURE_REASONS else "values" if reason in VALUE_REASONS else "rows"
        units[unit].append(f"{reason} {count:,}")
    return "; ".join(f"bad {unit}: {', '.join(found)}" for unit, found in units.items() if found)


def records_and_values(bad: Mapping[str, int]) -> int:
    """How many bad records and values these are."""
    return sum(count for reason, count in bad.items() if reason in REASONS)
