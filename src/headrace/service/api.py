"""The REST API of one hub, as a FastAPI application. Routes call public methods of the hub only.

Statements run in worker threads, because they may wait for an epoch. A client that disconnects does not interrupt its
statement: the statement takes effect as a whole or not at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from enum import Enum
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio.to_thread
import pyarrow as pa
from fastapi import APIRouter, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import JsonValue
from starlette.exceptions import HTTPException

import headrace
from headrace.base.logs import facts
from headrace.base.unknown import unknown
from headrace.errors import (
    BadRequest,
    HeadraceError,
    InternalError,
    MethodNotAllowed,
    NoSuchAddress,
    NotReady,
    StopTimeout,
    UnknownPipeline,
    UnknownSink,
    UnknownStream,
)
from headrace.service import models
from headrace.service.metrics import exposition
from headrace.service.problems import MEDIA_TYPE, Problem, problem_of
from headrace.service.readiness import require_ready
from headrace.service.sampling import INTERVAL_SECONDS, Sampler
from headrace.sinks import SINKS
from headrace.sql import CreatePipeline, CreateSink, CreateStream, Statement, parse_script

if TYPE_CHECKING:
    from headrace.hub.hub import Hub
    from headrace.hub.objects import Stream

# The live page: path -> file and media type.
ASSETS = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
ARROW = "application/vnd.apache.arrow.stream"
MAX_ROWS = 10_000
MAX_WAIT = 600.0
_log = logging.getLogger(__name__)
_KINDS: dict[type[Statement], str] = {CreateStream: "stream", CreateSink: "sink", CreatePipeline: "pipeline"}

Limit = Annotated[int, Query(ge=1, le=MAX_ROWS, description="maximum number of rows")]
Wait = Annotated[float, Query(gt=0, le=MAX_WAIT, description="maximum number of seconds to wait")]
ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "content": {MEDIA_TYPE: {}}} for code in (400, 401, 403, 404, 409, 413, 422, 503)
}


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
    routes = Routes(hub, startup)
    app.include_router(routes.service_router())
    app.include_router(routes.api_router(), prefix="/api/v1")
    app.add_exception_handler(HeadraceError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_defect)
    return app


class Routes:
    """The routes of one hub. Methods without `async` run in worker threads."""

    def __init__(self, hub: Hub, startup: Callable[[], str]) -> None:
        self._hub, self._startup = hub, startup
        self._sampler = Sampler(hub)

    # --- the service itself -----------------------------------------------------------------------

    def service_router(self) -> APIRouter:
        router = APIRouter(tags=["service"])
        router.add_api_route("/health", self.health, methods=["GET"], summary="Is the process up?")
        router.add_api_route(
            "/ready",
            self.ready,
            methods=["GET"],
            summary="Does everything run that should run?",
            responses={503: ERRORS[503]},
        )
        router.add_api_route(
            "/metrics", self.metrics, methods=["GET"], summary="Prometheus metrics", response_class=PlainTextResponse
        )
        for path in ASSETS:
            router.add_api_route(path, _asset(path), methods=["GET"], include_in_schema=False)
        return router

    async def health(self) -> models.Health:
        return models.Health(version=headrace.__version__)

    def ready(self) -> models.Ready:
        """Answers 503 with NOT_READY if a stream or a pipeline that should run does not, or not yet. `errors` names
        each of them, with the code of its failure."""
        require_ready(self._hub, self._startup())
        return models.Ready()

    def metrics(self) -> Response:
        body, media_type = exposition(self._hub)
        return Response(body, media_type=media_type)

    # --- the API ----------------------------------------------------------------------------------

    def api_router(self) -> APIRouter:
        router = APIRouter(responses=ERRORS)
        add = router.add_api_route
        add("/sql", self.sql, methods=["POST"], tags=["sql"], summary="Run a script")
        add("/validate", self.validate, methods=["POST"], tags=["sql"], summary="Plan a script without running it")
        add("/explain", self.explain, methods=["POST"], tags=["sql"], summary="EXPLAIN a query or CREATE PIPELINE")
        add("/events", self.events, methods=["GET"], tags=["live"], summary="Live status as server-sent events")
        for kind in ("stream", "sink", "pipeline"):
            self._add_object_routes(router, kind)
        self._add_stream_routes(router)
        self._add_pipeline_routes(router)
        add("/savepoints", self.list_savepoints, methods=["GET"], tags=["savepoints"], summary="List savepoints")
        add("/savepoints", self.savepoint, methods=["POST"], status_code=201, tags=["savepoints"], summary="Take one")
        return router

    def _add_object_routes(self, router: APIRouter, kind: str) -> None:
        """Add the routes that all objects have: list, create, get, replace and drop."""
        all_of, one = f"/{kind}s", f"/{kind}s/{{name}}"
        tags: list[str | Enum] = [f"{kind}s"]
        add = router.add_api_route
        add(all_of, getattr(self, f"list_{kind}s"), methods=["GET"], tags=tags, summary=f"List {kind}s")
        add(one, getattr(self, f"get_{kind}"), methods=["GET"], tags=tags, summary=f"One {kind}")
        add(
            all_of,
            self._creator(kind, replace=False),
            methods=["POST"],
            status_code=201,
            tags=tags,
            summary=f"Create a {kind}",
            response_model=models.ScriptResult,
            operation_id=f"create_{kind}",
        )
        add(
            one,
            self._creator(kind, replace=True),
            methods=["PUT"],
            tags=tags,
            summary=f"Create or replace a {kind}",
            response_model=models.ScriptResult,
            operation_id=f"replace_{kind}",
        )
        add(
            one,
            self._dropper(kind),
            methods=["DELETE"],
            tags=tags,
            summary=f"Drop a {kind}",
            response_model=models.ScriptResult,
            operation_id=f"drop_{kind}",
        )

    def _add_stream_routes(self, router: APIRouter) -> None:
        tags: list[str | Enum] = ["streams"]
        add = router.add_api_route
        add("/streams/{name}/sync", self.sync, methods=["POST"], tags=tags, summary="Wait for an epoch")
        add("/streams/{name}/flush", self.flush, methods=["POST"], tags=tags, summary="Make output durable")
        add("/streams/{name}/ping", self.ping, methods=["POST"], tags=tags, summary="Its newest epoch")
        add("/streams/{name}/ingress", self.ingress, methods=["GET"], tags=tags, summary="Counters of its gateway")
        add(
            "/streams/{name}/dead-letters",
            self.dead_letters,
            methods=["GET"],
            tags=tags,
            summary="Bad records",
            response_model=models.TableRows,
            responses={200: {"content": {ARROW: {}}}},
        )

    def _add_pipeline_routes(self, router: APIRouter) -> None:
        tags: list[str | Enum] = ["pipelines"]
        add = router.add_api_route
        add("/pipelines/{name}/start", self.start, methods=["POST"], tags=tags, summary="Start a pipeline")
        add("/pipelines/{name}/stop", self.stop, methods=["POST"], tags=tags, summary="Stop a pipeline")
        add("/pipelines/{name}/explain", self.explain_one, methods=["GET"], tags=tags, summary="Its plan")
        add(
            "/pipelines/{name}/results",
            self.results,
            methods=["GET"],
            tags=tags,
            summary="Newest rows of a memory sink",
            response_model=models.TableRows,
            responses={200: {"content": {ARROW: {}}}},
        )

    def sql(self, script: models.Sql, limit: Limit = 1000) -> models.ScriptResult:
        """All statements of the script take effect, or none. Returns one result per statement."""
        return self._run(script.text, limit)

    def validate(self, script: models.Sql) -> models.ScriptCheck:
        """Answers 400 with the first error if the script would not run."""
        return models.ScriptCheck(statements=len(self._hub.check(script.text)))

    def explain(self, script: models.Sql, mode: Literal["plain", "verbose", "json"] = "plain") -> models.PlanText:
        """The plan, and how adding it would change the running stream."""
        keyword = "" if mode == "plain" else f"{mode.upper()} "
        results = self._hub.check(f"EXPLAIN {keyword}{script.text}")
        if len(results) != 1:
            raise BadRequest("this address explains exactly one statement", advice="Send one query or CREATE PIPELINE.")
        return models.PlanText(text=results[0].text)

    async def events(
        self, request: Request, last_event_id: Annotated[str | None, Header()] = None, once: bool = False
    ) -> StreamingResponse:
        """One event per second with the status of all streams and pipelines. A client that reconnects with the header
        `Last-Event-ID` gets the samples it missed, if they are still kept. `once` ends after the first event."""
        last = int(last_event_id) if last_event_id is not None and last_event_id.isdigit() else None
        return StreamingResponse(
            self._events(request, last, once), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def _events(self, request: Request, last: int | None, once: bool) -> AsyncIterator[str]:
        while not await request.is_disconnected():
            newest = self._sampler.fresh()
            if newest is None:
                newest = await anyio.to_thread.run_sync(self._sampler.latest)
            if last is None or last > newest.id:  # a new client, or the hub was restarted and counts from 1
                last = newest.id - 1
            for sample in self._sampler.after(last):
                yield sample.event
                last = sample.id
            if once:
                return
            await asyncio.sleep(INTERVAL_SECONDS)

    # --- streams, sinks, pipelines ----------------------------------------------------------------

    def list_streams(self) -> list[models.StreamInfo]:
        return [self.get_stream(name) for name in self._hub.streams]

    def get_stream(self, name: str) -> models.StreamInfo:
        stream = self._hub.catalog.stream(name)
        if stream is None:
            raise unknown(UnknownStream, "stream", name, self._hub.catalog.stream_names())
        handle = self._hub.streams[stream.name]
        time_column = stream.schema[stream.event_time].name if stream.event_time is not None else None
        return models.StreamInfo(
            name=stream.name,
            source=stream.source,
            format=stream.format,
            columns=[models.ColumnInfo(name=f.name, type=str(f.type)) for f in stream.schema],
            event_time=time_column,
            pipelines=[p.definition.name for p in self._hub.catalog.of_stream(stream.name)],
            addresses=handle.addresses(),
            create_sql=f"{stream.sql};",
            status=models.status_json(handle.status()),
            totals=models.totals_json(handle.totals()),
        )

    def list_sinks(self) -> list[models.SinkInfo]:
        return [self.get_sink(name) for name in self._hub.catalog.sink_names()]

    def get_sink(self, name: str) -> models.SinkInfo:
        sink = self._hub.catalog.sink(name)
        if sink is None:
            raise unknown(UnknownSink, "sink", name, self._hub.catalog.sink_names())
        return models.SinkInfo(
            name=sink.name,
            type=sink.kind,
            guarantee=SINKS[sink.kind].guarantee,
            used_by=self._hub.catalog.users_of_sink(sink.name),
        )

    def list_pipelines(self) -> list[models.PipelineInfo]:
        return [self.get_pipeline(name) for name in self._hub.pipelines]

    def get_pipeline(self, name: str) -> models.PipelineInfo:
        definition = self._hub.record(name).definition
        stream = self._hub.catalog.stream(definition.program.stream)
        assert stream is not None  # a stream with pipelines cannot be dropped
        return models.PipelineInfo(
            name=definition.name,
            stream=definition.program.stream,
            sinks=[s.name for s in definition.sinks],
            sql=definition.sql,
            family=models.family_label(definition.program, stream.schema),
            memory_sink=any(sink.kind == "memory" for sink, _ in definition.outlets),
            status=models.status_json(self._hub.pipelines[definition.name].status()),
        )

    def _creator(self, kind: str, replace: bool) -> Any:
        def create(statement: models.Sql) -> models.ScriptResult:
            self._require_kind(statement.text, kind)
            return self._run(statement.text)

        def create_or_replace(name: str, statement: models.Sql) -> models.ScriptResult:
            self._require_kind(statement.text, kind, name)
            return self._run(statement.text)

        return create_or_replace if replace else create

    def _require_kind(self, text: str, kind: str, name: str | None = None) -> None:
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

    def _dropper(self, kind: str) -> Any:
        def drop(name: str) -> models.ScriptResult:
            getattr(self, f"get_{kind}")(name)  # raises an error (404) if it does not exist
            return self._run(f"DROP {kind.upper()} {_quoted(name)}")

        return drop

    def sync(self, name: str, timeout: Wait = 60) -> models.Epoch:
        """Wait until every row read before the call is in the sinks. Returns the epoch."""
        return self._awaited(name, timeout, lambda stream: stream.sync(timeout))

    def flush(self, name: str, timeout: Wait = 60) -> models.Epoch:
        """Wait until all data that the sinks and the gateway have received is durable. Returns the newest epoch."""
        return self._awaited(name, timeout, lambda stream: stream.flush(timeout))

    def ping(self, name: str) -> models.Epoch:
        """Ask the committer for its newest epoch. Does not wait for rows."""
        return models.Epoch(epoch=self._stream(name).ping())

    def _awaited(self, name: str, timeout: float, act: Callable[[Stream], int]) -> models.Epoch:
        stream = self._stream(name)
        try:
            return models.Epoch(epoch=act(stream))
        except TimeoutError:
            raise StopTimeout(f"no epoch of {name} was committed in {timeout:g} s", advice="Try again.") from None

    def ingress(self, name: str) -> dict[str, JsonValue]:
        """Addresses and counters of a pushed stream that runs; empty for other streams."""
        return {key: models.plain(value) for key, value in self._stream(name).ingress().items()}

    def dead_letters(self, name: str, limit: Limit = 100, accept: Annotated[str, Header()] = "application/json") -> Any:
        """As JSON, or as an Arrow stream. 404 if the stream's `dead_letter_sink` is not a memory sink."""
        return _table(self._stream(name).dead_letters(), limit, accept)

    def _stream(self, name: str) -> Stream:
        found = self._hub.catalog.stream(name)
        if found is None:
            raise unknown(UnknownStream, "stream", name, self._hub.catalog.stream_names())
        return self._hub.streams[found.name]

    # --- one pipeline -----------------------------------------------------------------------------

    def start(self, name: str) -> models.ScriptResult:
        self._require_pipeline(name)
        return self._run(f"START PIPELINE {_quoted(name)}")

    def stop(
        self, name: str, mode: Literal["graceful", "now"] = "graceful", close_windows: bool = False, timeout: Wait = 60
    ) -> models.ScriptResult:
        """Graceful: returns once every row read before the stop is in the sinks. After `timeout` seconds the answer is
        503 with STOP_TIMEOUT; the pipeline still stops when its epoch is committed."""
        self._require_pipeline(name)
        how = "NOW" if mode == "now" else f"GRACEFUL {'CLOSE' if close_windows else 'KEEP'} WINDOWS"
        worker = ThreadPoolExecutor(1, thread_name_prefix="headrace-stop")
        try:
            return worker.submit(self._run, f"STOP PIPELINE {_quoted(name)} {how}").result(timeout)
        except FutureTimeout:
            raise StopTimeout(
                f"{name} did not stop in {timeout:g} s",
                advice="It stops when the running epoch is committed. Use mode=now to stop without waiting.",
                names=name,
            ) from None
        finally:
            worker.shutdown(wait=False)

    def explain_one(self, name: str, mode: Literal["plain", "verbose", "json"] = "plain") -> models.PlanText:
        self._require_pipeline(name)
        keyword = "" if mode == "plain" else f"{mode.upper()} "
        (result,) = self._hub.check(f"EXPLAIN {keyword}PIPELINE {_quoted(name)}")
        return models.PlanText(text=result.text)

    def results(
        self,
        name: str,
        sink: str | None = None,
        limit: Limit = 1000,
        accept: Annotated[str, Header()] = "application/json",
    ) -> Any:
        """As JSON, or as an Arrow stream if the client accepts `application/vnd.apache.arrow.stream`."""
        self._require_pipeline(name)
        return _table(self._hub.pipelines[self._hub.record(name).definition.name].results(sink), limit, accept)

    def _require_pipeline(self, name: str) -> None:
        if self._hub.catalog.pipeline(name) is None:
            raise unknown(UnknownPipeline, "pipeline", name, self._hub.catalog.pipeline_names())

    # --- savepoints -------------------------------------------------------------------------------

    def list_savepoints(self) -> list[models.SavepointInfo]:
        return [models.SavepointInfo(name=p.name, path=str(p)) for p in self._hub.savepoints()]

    def savepoint(self, request: models.SavepointRequest) -> models.SavepointInfo:
        path = self._hub.savepoint(request.name, request.stream)
        return models.SavepointInfo(name=path.name, path=str(path))

    def _run(self, text: str, limit: int = 1000) -> models.ScriptResult:
        return models.ScriptResult(results=[models.statement_result(r, limit) for r in self._hub.sql(text)])


def _asset(path: str) -> Any:
    name, media_type = ASSETS[path]
    body = resources.files("headrace.service").joinpath("page", name).read_bytes()

    async def serve() -> Response:
        return Response(body, media_type=media_type, headers=PAGE_HEADERS)

    return serve


def _table(table: pa.Table, limit: int, accept: str) -> Any:
    if ARROW in accept:
        return Response(_arrow(models.fitting(table, limit, newest=True)), media_type=ARROW)
    return models.newest(table, limit)


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


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
