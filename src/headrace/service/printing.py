"""Results of statements as text: aligned tables for people, JSON and CSV for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Literal

from headrace.hub.results import Result
from headrace.service.models import plain

Format = Literal["table", "json", "csv"]


def printed(results: Sequence[Result], how: Format) -> str:
    """`results` in order. JSON is one list with an entry per result; CSV has a header line per table."""
    if how == "json":
        return json.dumps([_entry(r) for r in results], indent=2)
    if how == "csv":
        return "\n".join(_csv(r) for r in results)
    return "\n".join(r.render() for r in results)


def _entry(result: Result) -> object:
    told: dict[str, object] = {"warnings": list(result.warnings)} if result.warnings else {}
    if result.table is None:
        return {"text": result.text} | told
    return {"rows": [{k: plain(v) for k, v in row.items()} for row in result.table.to_pylist()]} | told


def _csv(result: Result) -> str:
    if result.table is None:
        return result.render()
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(result.table.column_names)
    for row in zip(*(c.to_pylist() for c in result.table.columns), strict=True):
        writer.writerow(["" if v is None else plain(v) for v in row])
    return buffer.getvalue().rstrip("\n")
