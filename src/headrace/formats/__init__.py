"""Formats: bytes to Arrow columns. `FORMATS` is the registry; the interface is in `headrace.formats.format_kind`."""

from __future__ import annotations

from typing import Any

from headrace.formats.csv import CSV
from headrace.formats.format_kind import FormatKind
from headrace.formats.framed import LENGTH_PREFIXED
from headrace.formats.json import JSON, NDJSON
from headrace.formats.native import NATIVE
from headrace.formats.text import TEXT

FORMATS: dict[str, FormatKind[Any]] = {kind.name: kind for kind in (JSON, NDJSON, CSV, TEXT, NATIVE, LENGTH_PREFIXED)}

__all__ = ["FORMATS", "FormatKind"]
