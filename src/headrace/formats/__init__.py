"""Formats: bytes to Arrow columns. `FORMATS` is the registry; the interface is in `headrace.formats.base`."""

from __future__ import annotations

from headrace.formats.base import FormatKind
from headrace.formats.csv import CSV
from headrace.formats.json import JSON, NDJSON

FORMATS: dict[str, FormatKind] = {kind.name: kind for kind in (JSON, NDJSON, CSV)}

__all__ = ["FORMATS", "FormatKind"]
