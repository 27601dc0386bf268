"""The options that say how values are spelled, shared by the text formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.base.options import Option, choice
from headrace.formats.patterns import compile_pattern
from headrace.formats.values import Rules

EPOCHS = ("epoch_s", "epoch_ms", "epoch_us", "epoch_ns")


def time_format(value: str) -> str:
    """`iso`, an epoch unit, or a pattern."""
    if value.lower() in ("iso", *EPOCHS):
        return value.lower()
    compile_pattern(value)
    return value


def date_format(value: str) -> str:
    """`iso` or a pattern."""
    if value.lower() == "iso":
        return "iso"
    compile_pattern(value)
    return value


VALUE_OPTIONS = (
    Option(
        "timestamp_format",
        time_format,
        default="iso",
        help="iso, epoch_s, epoch_ms, epoch_us, epoch_ns or a pattern such as dd/MM/yyyy HH:mm:ss",
    ),
    Option("date_format", date_format, default="iso", help="iso or a pattern such as dd.MM.yyyy"),
    Option("utf8", choice("reject", "replace"), default="reject", help="what a string that is not UTF-8 becomes"),
    Option("binary", choice("base64", "hex", "raw"), default="base64", help="how BINARY columns are written"),
)


def rules_of(values: Mapping[str, Any]) -> Rules:
    """The rules that checked options give; a format need not have all of them."""
    stamp, date = values.get("timestamp_format", "iso"), values.get("date_format", "iso")
    return Rules(
        epoch=stamp if stamp in EPOCHS else None,
        stamp=compile_pattern(stamp) if stamp not in ("iso", *EPOCHS) else None,
        date=compile_pattern(date) if date != "iso" else None,
        utf8=values.get("utf8", "reject"),
        binary=values.get("binary", "base64"),
    )
