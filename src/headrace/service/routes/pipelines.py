"""Routes of pipelines."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Header

from headrace.base.unknown import unknown
from headrace.errors import StopTimeout, UnknownPipeline
from headrace.hub.objects import Pipeline
from headrace.hub.observed import pipeline_status
from headrace.service import models
from headrace.service.routes.common import TABLE, Limit, Wait, declared, quoted, run, table_answer
from headrace.service.routes.objects import object_router

if TYPE_CHECKING:
    from headrace.hub.hub import Hub


class PipelineRoutes:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def router(self) -> APIRouter:
        router = object_router(self._hub, "pipeline", self.list_pipelines, self.get_pipeline)
        add = router.add_api_route
        add("/pipelines/{name}/start", self.start, methods=["POST"], summary="Start a pipeline")
        add("/pipelines/{name}/stop", self.stop, methods=["POST"], summary="Stop a pipeline")
        add("/pipelines/{name}/explain", self.explain_one, methods=["GET"], summary="Its plan")
        add("/pipelines/{name}/results", self.results, methods=["GET"], summary="Newest rows of a memory sink", **TABLE)
        return router

    def list_pipelines(self) -> list[models.PipelineInfo]:
        return declared(self.get_pipeline, self._hub.catalog.pipeline_names())

    def get_pipeline(self, name: str) -> models.PipelineInfo:
        catalog = self._hub.catalog  # once: both may be dropped meanwhile
        record = catalog.pipeline(name)
        if record is None:
            raise unknown(UnknownPipeline, "pipeline", name, catalog.pipeline_names())
        definition = record.definition
        stream = catalog.stream(definition.program.stream)
        assert stream is not None  # a stream with pipelines cannot be dropped
        return models.PipelineInfo(
            name=definition.name,
            stream=definition.program.stream,
            sinks=[s.name for s in definition.sinks],
            sql=definition.sql,
            family=models.family_label(definition.program, stream.schema),
            memory_sink=any(sink.kind == "memory" for sink, _ in definition.outlets),
            status=models.status_json(pipeline_status(record, self._hub.runtime(stream.name))),
        )

    def start(self, name: str) -> models.ScriptResult:
        self._hub.record(name)
        return run(self._hub, f"START PIPELINE {quoted(name)}")

    def stop(
        self, name: str, mode: Literal["graceful", "now"] = "graceful", close_windows: bool = False, timeout: Wait = 60
    ) -> models.ScriptResult:
        """Graceful: returns once every row read before the stop is in the sinks. After `timeout` seconds the answer is
        503 with STOP_TIMEOUT; the pipeline still stops when its epoch is committed."""
        self._hub.record(name)
        how = "NOW" if mode == "now" else f"GRACEFUL {'CLOSE' if close_windows else 'KEEP'} WINDOWS"
        worker = ThreadPoolExecutor(1, thread_name_prefix="headrace-stop")
        try:
            return worker.submit(run, self._hub, f"STOP PIPELINE {quoted(name)} {how}").result(timeout)
        except FutureTimeout:
            raise StopTimeout(
                f"{name} did not stop in {timeout:g} s",
                advice="It stops when the running epoch is committed. Use mode=now to stop without waiting.",
                names=name,
            ) from None
        finally:
            worker.shutdown(wait=False)

    def explain_one(self, name: str, mode: Literal["plain", "verbose", "json"] = "plain") -> models.PlanText:
        self._hub.record(name)
        keyword = "" if mode == "plain" else f"{mode.upper()} "
        (result,) = self._hub.check(f"EXPLAIN {keyword}PIPELINE {quoted(name)}")
        return models.PlanText(text=result.text)

    def results(
        self,
        name: str,
        sink: str | None = None,
        limit: Limit = 1000,
        accept: Annotated[str, Header()] = "application/json",
    ) -> Any:
        """As JSON, or as an Arrow stream if the client accepts `application/vnd.apache.arrow.stream`."""
        return table_answer(Pipeline(self._hub, self._hub.record(name).definition.name).results(sink), limit, accept)
