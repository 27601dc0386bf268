"""The routes that streams, sinks and pipelines have alike: list, create, get, replace and drop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter

from headrace.errors import BadRequest
from headrace.service import models
from headrace.service.routes.common import ERRORS, quoted, run
from headrace.sql import CreatePipeline, CreateSink, CreateStream, Statement, parse_script

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

_KINDS: dict[type[Statement], str] = {CreateStream: "stream", CreateSink: "sink", CreatePipeline: "pipeline"}


def object_router(hub: Hub, kind: str, list_all: Callable[[], Any], get: Callable[[str], Any]) -> APIRouter:
    """The routes of all objects of one kind: `stream`, `sink` or `pipeline`. `get` raises an error (404) if there is no
    object of that name."""
    all_of, one = f"/{kind}s", f"/{kind}s/{{name}}"
    router = APIRouter(responses=ERRORS, tags=[f"{kind}s"])
    add = router.add_api_route

    def create(statement: models.Sql) -> models.ScriptResult:
        _require_kind(statement.text, kind)
        return run(hub, statement.text)

    def replace(name: str, statement: models.Sql) -> models.ScriptResult:
        _require_kind(statement.text, kind, name)
        return run(hub, statement.text)

    def drop(name: str) -> models.ScriptResult:
        get(name)
        return run(hub, f"DROP {kind.upper()} {quoted(name)}")

    add(all_of, list_all, methods=["GET"], summary=f"List {kind}s")
    add(one, get, methods=["GET"], summary=f"One {kind}")
    add(
        all_of,
        create,
        methods=["POST"],
        status_code=201,
        summary=f"Create a {kind}",
        operation_id=f"create_{kind}",
    )
    add(one, replace, methods=["PUT"], summary=f"Create or replace a {kind}", operation_id=f"replace_{kind}")
    add(one, drop, methods=["DELETE"], summary=f"Drop a {kind}", operation_id=f"drop_{kind}")
    return router


def _require_kind(text: str, kind: str, name: str | None = None) -> None:
    """Raise BadRequest unless `text` is one CREATE statement of this kind and name."""
    statements = parse_script(text)
    found = statements[0] if len(statements) == 1 else None
    if found is None or _KINDS.get(type(found)) != kind:
        raise BadRequest(
            f"this address takes one CREATE {kind.upper()} statement",
            advice="Send other statements to /api/v1/sql.",
        )
    created: Any = found
    if name is not None and created.name.lower() != name.lower():
        raise BadRequest(
            f"the statement creates {created.name}, not {name}",
            advice="The name in the address and in the statement must be the same.",
        )
