"""What the routes share: parameters, descriptions of errors, running a script, and tables as answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import pyarrow as pa
from fastapi import Query, Response

from headrace.errors import UnknownPipeline, UnknownSink, UnknownStream
from headrace.service import models
from headrace.service.problems import MEDIA_TYPE, Problem

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

T = TypeVar("T")
ARROW = "application/vnd.apache.arrow.stream"
MAX_ROWS = 10_000
MAX_WAIT = 600.0

Limit = Annotated[int, Query(ge=1, le=MAX_ROWS, description="maximum number of rows")]
Wait = Annotated[float, Query(gt=0, le=MAX_WAIT, description="maximum number of seconds to wait")]
ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "content": {MEDIA_TYPE: {}}} for code in (400, 401, 403, 404, 409, 413, 422, 503)
}
# A route that answers with a table, as JSON or as an Arrow stream.
TABLE: dict[str, Any] = {"response_model": models.TableRows, "responses": {200: {"content": {ARROW: {}}}}}


def run(hub: Hub, text: str, limit: int = 1000, *, arrow: bool = False) -> models.ScriptResult:
    """Run a script. Returns at most `limit` rows for each statement."""
    return models.ScriptResult(results=[models.statement_result(r, limit, arrow=arrow) for r in hub.sql(text)])


def declared(get: Callable[[str], T], names: Iterable[str]) -> list[T]:
    """What `get` returns for each of these names, without those that were dropped since they were listed."""
    found: list[T] = []
    for name in names:
        with contextlib.suppress(UnknownStream, UnknownSink, UnknownPipeline):
            found.append(get(name))
    return found


def table_answer(table: pa.Table, limit: int, accept: str) -> Any:
    """The newest rows of a table in the format that the client accepts."""
    if ARROW in accept:
        return Response(_arrow(models.fitting(table, limit, newest=True)), media_type=ARROW)
    return models.newest(table, limit)


def quoted(name: str) -> str:
    """A name as SQL text."""
    return "`" + name.replace("`", "``") + "`"


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
