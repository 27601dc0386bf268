"""Formats: bytes to Arrow columns. `FORMATS` is the registry; the interface is in `headrace.formats.format_kind`."""

from __future__ import annotations

from typing import Any

from headrace.base.plugins import Registry
from headrace.formats.arrow_files import ARROW
from headrace.formats.avro import AVRO
from headrace.formats.csv import CSV
from headrace.formats.format_kind import FormatKind
from headrace.formats.framed import LENGTH_PREFIXED
from headrace.formats.json import JSON, NDJSON
from headrace.formats.native import NATIVE
from headrace.formats.parquet_files import PARQUET
from headrace.formats.text import TEXT

FORMATS: Registry[FormatKind[Any]] = Registry(
    "headrace.formats", FormatKind, (JSON, NDJSON, CSV, TEXT, NATIVE, LENGTH_PREFIXED, PARQUET, ARROW, AVRO)
)

__all__ = ["FORMATS", "FormatKind"]
