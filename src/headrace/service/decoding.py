"""Decodes a hub's HTTP answers into the objects that a hub in this process returns: results, statuses and errors."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa

from headrace import errors
from headrace.errors import HeadraceError, Span
from headrace.errors.span import ELLIPSIS
from headrace.hub.results import Result
from headrace.model.status import Gap, PipelineStatus, StateChange, StreamStatus, Traffic

_T = TypeVar("_T")


def decode_result(found: dict[str, Any]) -> Result:
    """The result of a statement from its JSON, with its rows as an Arrow stream."""
    warnings = tuple(found.get("warnings", ()))
    if found["columns"] is None:
        return Result(text=found["text"], warnings=warnings)
    return Result(table=pa.ipc.open_stream(base64.b64decode(found["arrow"])).read_all(), warnings=warnings)


def decode_status(kind: type[_T], found: dict[str, Any]) -> _T:
    """A status object from its JSON. Ignores fields that this version does not know."""
    values = {"gaps": [], "error": "", **found} if kind is PipelineStatus else dict(found)
    for moment in ("watermark", "since", "next_try"):
        if values.get(moment) is not None:
            values[moment] = datetime.fromisoformat(values[moment])
    for name, part in (("gaps", Gap), ("changes", StateChange)):
        if name in values:
            values[name] = [part(**v) for v in values[name]]
    for name in ("sent", "received"):
        if name in values:
            values[name] = Traffic(**values[name])
    known = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{k: v for k, v in values.items() if k in known})


def decode_sample(event: dict[str, Any]) -> tuple[list[StreamStatus], list[PipelineStatus]]:
    """The status objects of a live sample."""
    streams = [decode_status(StreamStatus, s) for s in event["streams"].values()]
    return streams, [decode_status(PipelineStatus, p) for p in event["pipelines"].values()]


def _classes(kind: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    yield kind
    for sub in kind.__subclasses__():
        yield from _classes(sub)


_BY_CODE = {kind.code: kind for kind in _classes(HeadraceError)}


def decode_error(problem: dict[str, Any]) -> HeadraceError:
    """The error that the hub raised, with its class, message and advice. `params["detail"]` is the text that the hub
    rendered, with the position in the SQL text."""
    kind = _BY_CODE.get(str(problem.get("code", "")), errors.ExternalError)
    params: dict[str, Any] = {"detail": problem.get("detail", "")}
    if problem.get("errors"):
        params["errors"] = tuple(decode_error(e) for e in problem["errors"])
    place, span = problem.get("place"), None
    if place is not None:
        text = _line_of(problem.get("detail", ""), place)
        span = Span(text, len(text) - len(text.rsplit("\n", 1)[-1]) + place["column"] - 1, 0, place.get("statement"))
        span = dataclasses.replace(span, end=span.start + place["length"])
    return kind(str(problem["title"]), advice=str(problem.get("advice", "")), span=span, **params)


def _line_of(detail: str, place: dict[str, Any]) -> str:
    """A text that has the source line from `detail` at its line number, so the caret points to the same place. A line
    whose beginning is cut off is moved to its column."""
    mark, lines = f"  {place['line']} | ", detail.split("\n")
    at = next((i for i, line in enumerate(lines) if line.startswith(mark)), None)
    shown = "" if at is None else lines[at].removeprefix(mark)
    if at is not None and shown.startswith(ELLIPSIS) and at + 1 < len(lines):
        shown = " " * (int(place["column"]) - 1 - (lines[at + 1].find("^") - len(mark))) + shown
    return "\n" * (int(place["line"]) - 1) + shown
