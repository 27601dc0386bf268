"""The REST API of one hub, as a FastAPI application. Every route calls the hub's public methods and nothing else.

Statements run in worker threads: they may wait for an epoch. A client that disconnects does not interrupt its
statement, which takes effect as a whole or not at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
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
from headrace.errors import (
    BadRequest,
    HeadraceError,
    InternalError,
    MethodNotAllowed,
    NoSuchAddress,
    StopTimeout,
    UnknownPipeline,
    UnknownSink,
    UnknownStream,
)
from headrace.logs import facts
from headrace.service import models
from headrace.service.metrics import exposition
from headrace.service.problems import MEDIA_TYPE, Problem, problem_of
from headrace.service.sampling import INTERVAL_SECONDS, Sampler
from headrace.sinks import SINKS
from headrace.sql import CreatePipeline, CreateSink, CreateStream, Statement, parse_script

if TYPE_CHECKING:
    from headrace.hub import Hub
    from headrace.objects import Stream

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

Limit = Annotated[int, Query(ge=1, le=MAX_ROWS, description="rows at most")]
Wait = Annotated[float, Query(gt=0, le=MAX_WAIT, description="seconds to wait at most")]
ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "content": {MEDIA_TYPE: {}}} for code in (400, 401, 403, 404, 409, 413, 422, 503)
}


def make_app(hub: Hub) -> FastAPI:
    """The application of `hub`. Errors are problem details (RFC 9457) with the product's error codes."""
    app = FastAPI(
        title="headrace",
        version=headrace.__version__,
        summary="SQL pipelines that share one raw stream on Apache Spark.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    routes = Routes(hub)
    app.include_router(routes.service_router())
    app.include_router(routes.api_router(), prefix="/api/v1")
    app.add_exception_handler(HeadraceError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_defect)
    return app


class Routes:
    """The routes of one hub. Methods without `async` run in worker threads."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._sampler = Sampler(hub)

    # --- the service itself -----------------------------------------------------------------------

    def service_router(self) -> APIRouter:
        router = APIRouter(tags=["service"])
        router.add_api_route("/health", self.health, methods=["GET"], summary="Is the process up?")
        router.add_api_route("/ready", self.ready, methods=["GET"], summary="Does everything run that should?")
        router.add_api_route(
            "/metrics", self.metrics, methods=["GET"], summary="Prometheus metrics", response_class=PlainTextResponse
        )
        for path in ASSETS:
            router.add_api_route(path, _asset(path), methods=["GET"], include_in_schema=False)
        return router

    async def health(self) -> models.Health:
        return models.Health(version=headrace.__version__)

    def ready(self, response: Response) -> models.Ready:
        """503 with the names of the culprits when a stream or a pipeline that should run does not."""
        problems = []
        for name, stream in self._hub.streams.items():
            status = stream.status()
            if status.problem:
                problems.append(f"stream {name}: {status.problem.splitlines()[0]}")
        for name, pipeline in self._hub.pipelines.items():
            state = pipeline.status()
            if state.state == "failed":
                problems.append(f"pipeline {name}: {state.error.splitlines()[0] if state.error else 'failed'}")
        response.status_code = 503 if problems else 200
        return models.Ready(ready=not problems, problems=problems)

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
        add("/events", self.events, methods=["GET"], tags=["live"], summary="Live figures as server-sent events")
        for kind, what in (("streams", "stream"), ("sinks", "sink"), ("pipelines", "pipeline")):
            add(f"/{kind}", getattr(self, f"list_{kind}"), methods=["GET"], tags=[kind], summary=f"List {kind}")
            add(
                f"/{kind}",
                self._creator(what, replace=False),
                methods=["POST"],
                status_code=201,
                tags=[kind],
                summary=f"Create a {what}",
                response_model=models.ScriptResult,
                operation_id=f"create_{what}",
            )
            add(f"/{kind}/{{name}}", getattr(self, f"get_{what}"), methods=["GET"], tags=[kind], summary=f"One {what}")
            add(
                f"/{kind}/{{name}}",
                self._creator(what, replace=True),
                methods=["PUT"],
                tags=[kind],
                summary=f"Create or replace a {what}",
                response_model=models.ScriptResult,
                operation_id=f"replace_{what}",
            )
            add(
                f"/{kind}/{{name}}",
                self._dropper(what),
                methods=["DELETE"],
                tags=[kind],
                summary=f"Drop a {what}",
                response_model=models.ScriptResult,
                operation_id=f"drop_{what}",
            )
        add("/streams/{name}/sync", self.sync, methods=["POST"], tags=["streams"], summary="Wait for an epoch")
        add("/streams/{name}/flush", self.flush, methods=["POST"], tags=["streams"], summary="Make output durable")
        add("/streams/{name}/ping", self.ping, methods=["POST"], tags=["streams"], summary="Its newest epoch")
        add(
            "/streams/{name}/ingress",
            self.ingress,
            methods=["GET"],
            tags=["streams"],
            summary="What its gateway counts",
        )
        add(
            "/streams/{name}/dead-letters",
            self.dead_letters,
            methods=["GET"],
            tags=["streams"],
            summary="Bad records",
            response_model=models.Rows,
            responses={200: {"content": {ARROW: {}}}},
        )
        add("/pipelines/{name}/start", self.start, methods=["POST"], tags=["pipelines"], summary="Start a pipeline")
        add("/pipelines/{name}/stop", self.stop, methods=["POST"], tags=["pipelines"], summary="Stop a pipeline")
        add("/pipelines/{name}/explain", self.explain_one, methods=["GET"], tags=["pipelines"], summary="Its plan")
        add(
            "/pipelines/{name}/results",
            self.results,
            methods=["GET"],
            tags=["pipelines"],
            summary="Newest rows of a memory sink",
            response_model=models.Rows,
            responses={200: {"content": {ARROW: {}}}},
        )
        add("/savepoints", self.list_savepoints, methods=["GET"], tags=["savepoints"], summary="List savepoints")
        add("/savepoints", self.savepoint, methods=["POST"], status_code=201, tags=["savepoints"], summary="Take one")
        return router

    def sql(self, script: models.Sql, limit: Limit = 1000) -> models.ScriptResult:
        """All statements of the script take effect, or none. Returns one result per statement."""
        return self._run(script.text, limit)

    def validate(self, script: models.Sql) -> models.Checked:
        """Answers 400 with the first error when the script would not run."""
        return models.Checked(statements=len(self._hub.check(script.text)))

    def explain(self, script: models.Sql, mode: Literal["plain", "verbose", "json"] = "plain") -> models.Text:
        """The plan, and what adding it to the running stream would change."""
        keyword = "" if mode == "plain" else f"{mode.upper()} "
        results = self._hub.check(f"EXPLAIN {keyword}{script.text}")
        if len(results) != 1:
            raise BadRequest("this address explains one statement", advice="Send one query or CREATE PIPELINE.")
        return models.Text(text=results[0].text)

    async def events(
        self, request: Request, last_event_id: Annotated[str | None, Header()] = None, once: bool = False
    ) -> StreamingResponse:
        """One event a second with the status of all streams and pipelines. A reader that comes back with the header
        `Last-Event-ID` gets the samples that it missed, as far as they are kept. `once` ends after the first event."""
        last = int(last_event_id) if last_event_id is not None and last_event_id.isdigit() else None
        return StreamingResponse(
            self._events(request, last, once), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def _events(self, request: Request, last: int | None, once: bool) -> AsyncIterator[str]:
        while not await request.is_disconnected():
            newest = self._sampler.fresh()
            if newest is None:
                newest = await anyio.to_thread.run_sync(self._sampler.latest)
            if last is None or last > newest.id:  # a first visit, or a hub that was started again
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
            raise UnknownStream(f"there is no stream {name}", name=name)
        handle = self._hub.streams[stream.name]
        time_column = stream.schema[stream.event_time].name if stream.event_time is not None else None
        return models.StreamInfo(
            name=stream.name,
            source=stream.source,
            format=stream.format,
            columns=[models.Column(name=f.name, type=str(f.type)) for f in stream.schema],
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
            raise UnknownSink(f"there is no sink {name}", name=name)
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
            getattr(self, f"get_{kind}")(name)  # 404 if there is none
            return self._run(f"DROP {kind.upper()} {_quoted(name)}")

        return drop

    def sync(self, name: str, timeout: Wait = 60) -> models.Epoch:
        """Returns the epoch, when every row read before the call is in the sinks."""
        return self._awaited(name, timeout, lambda stream: stream.sync(timeout))

    def flush(self, name: str, timeout: Wait = 60) -> models.Epoch:
        """Returns the newest epoch, when all that the sinks and the gateway were given is durable."""
        return self._awaited(name, timeout, lambda stream: stream.flush(timeout))

    def ping(self, name: str) -> models.Epoch:
        """Asks the committer, past the rows, for its newest epoch."""
        return models.Epoch(epoch=self._stream(name).ping())

    def _awaited(self, name: str, timeout: float, act: Callable[[Stream], int]) -> models.Epoch:
        stream = self._stream(name)
        try:
            return models.Epoch(epoch=act(stream))
        except TimeoutError:
            raise StopTimeout(f"no epoch of {name} was committed in {timeout:g} s", advice="Try again.") from None

    def ingress(self, name: str) -> dict[str, JsonValue]:
        """Addresses and counters of a pushed stream that runs; empty for others."""
        return {key: models.plain(value) for key, value in self._stream(name).ingress().items()}

    def dead_letters(self, name: str, limit: Limit = 100, accept: Annotated[str, Header()] = "application/json") -> Any:
        """As JSON, or as an Arrow stream. 404 when the stream's `dead_letter_sink` is no memory sink."""
        return _table(self._stream(name).dead_letters(), limit, accept)

    def _stream(self, name: str) -> Stream:
        found = self._hub.catalog.stream(name)
        if found is None:
            raise UnknownStream(f"there is no stream {name}", name=name)
        return self._hub.streams[found.name]

    # --- one pipeline -----------------------------------------------------------------------------

    def start(self, name: str) -> models.ScriptResult:
        self._require_pipeline(name)
        return self._run(f"START PIPELINE {_quoted(name)}")

    def stop(
        self, name: str, mode: Literal["graceful", "now"] = "graceful", close_windows: bool = False, timeout: Wait = 60
    ) -> models.ScriptResult:
        """Graceful: returns when every row before the stop is in the sinks. After `timeout` seconds it answers 503 with
        STOP_TIMEOUT; the pipeline still stops when its epoch is committed."""
        self._require_pipeline(name)
        how = "NOW" if mode == "now" else f"GRACEFUL {'CLOSE' if close_windows else 'KEEP'} WINDOWS"
        worker = ThreadPoolExecutor(1, thread_name_prefix="headrace-stop")
        try:
            return worker.submit(self._run, f"STOP PIPELINE {_quoted(name)} {how}").result(timeout)
        except FutureTimeout:
            raise StopTimeout(
                f"{name} did not stop in {timeout:g} s",
                advice="It stops when the epoch in flight is committed. mode=now does not wait for that.",
                names=name,
            ) from None
        finally:
            worker.shutdown(wait=False)

    def explain_one(self, name: str, mode: Literal["plain", "verbose", "json"] = "plain") -> models.Text:
        self._require_pipeline(name)
        keyword = "" if mode == "plain" else f"{mode.upper()} "
        (result,) = self._hub.check(f"EXPLAIN {keyword}PIPELINE {_quoted(name)}")
        return models.Text(text=result.text)

    def results(
        self,
        name: str,
        sink: str | None = None,
        limit: Limit = 1000,
        accept: Annotated[str, Header()] = "application/json",
    ) -> Any:
        """As JSON, or as an Arrow stream when the client accepts `application/vnd.apache.arrow.stream`."""
        self._require_pipeline(name)
        return _table(self._hub.pipelines[self._hub.record(name).definition.name].results(sink), limit, accept)

    def _require_pipeline(self, name: str) -> None:
        if self._hub.catalog.pipeline(name) is None:
            raise UnknownPipeline(f"there is no pipeline {name}", name=name)

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
    if answer.status_code >= 500:
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
    advice = "This should not happen. The log of the hub has the stack trace: headrace logs shows it."
    return _respond(InternalError(f"{type(error).__name__}: {error}", advice=advice))
