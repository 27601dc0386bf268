"""The REST API of one hub, as a FastAPI application. Routes call public methods of the hub only.

Statements run in worker threads, because they may wait for an epoch. A client that disconnects does not interrupt its
statement: the statement takes effect as a whole or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

import headrace
from headrace.base.logs import facts
from headrace.errors import BadRequest, HeadraceError, InternalError, MethodNotAllowed, NoSuchAddress, NotReady
from headrace.service.problems import MEDIA_TYPE, problem_of
from headrace.service.routes.events import EventRoutes
from headrace.service.routes.pipelines import PipelineRoutes
from headrace.service.routes.savepoints import SavepointRoutes
from headrace.service.routes.sinks import SinkRoutes
from headrace.service.routes.statements import StatementRoutes
from headrace.service.routes.streams import StreamRoutes
from headrace.service.routes.system import SystemRoutes

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

RESOURCES = (StatementRoutes, EventRoutes, StreamRoutes, SinkRoutes, PipelineRoutes, SavepointRoutes)
_log = logging.getLogger(__name__)


def make_app(hub: Hub, startup: Callable[[], str]) -> FastAPI:
    """The application of `hub`. Errors are problem details (RFC 9457) with headrace's error codes. `startup` returns
    what the process still does before the hub can be ready; empty if nothing."""
    app = FastAPI(
        title="headrace",
        version=headrace.__version__,
        summary="SQL pipelines that share one raw stream on Apache Spark.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.include_router(SystemRoutes(hub, startup).router())
    for routes in RESOURCES:
        app.include_router(routes(hub).router(), prefix="/api/v1")
    app.add_exception_handler(HeadraceError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_defect)
    return app


_SEE = "See /api/v1/openapi.json."


def _respond(error: HeadraceError) -> JSONResponse:
    problem = problem_of(error)
    headers = {"Retry-After": "1"} if problem.status == 503 else None
    return JSONResponse(problem.model_dump(), problem.status, headers=headers, media_type=MEDIA_TYPE)


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HeadraceError)
    answer = _respond(error)
    if answer.status_code >= 500 and not isinstance(error, NotReady):  # probes ask for readiness again and again
        noted = facts("request_failed", error.code, method=request.method, path=request.url.path)
        _log.warning("%s %s: %s", request.method, request.url.path, error.message, extra=noted)
    return answer


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return _respond(BadRequest(f"{where}: {first['msg']}", advice=_SEE))


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path}: {error.detail}"
    match error.status_code:
        case 404:
            answer = _respond(NoSuchAddress(what, advice=_SEE))
        case 405:
            answer = _respond(MethodNotAllowed(what, advice=_SEE))
        case _:
            answer = _respond(BadRequest(what, advice=_SEE))
    answer.headers.update(error.headers or {})
    return answer


async def _on_defect(request: Request, error: Exception) -> JSONResponse:
    noted = facts("request_failed", InternalError.code, method=request.method, path=request.url.path)
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error, extra=noted)
    advice = "This is a bug. Run headrace logs to see the stack trace, and report it."
    return _respond(InternalError(f"{type(error).__name__}: {error}", advice=advice))
