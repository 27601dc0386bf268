"""Routes of streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Header
from pydantic import JsonValue

from headrace.base.unknown import unknown
from headrace.errors import StopTimeout, UnknownStream
from headrace.hub.objects import Stream
from headrace.service import models
from headrace.service.routes.common import TABLE, Limit, Wait, declared, table_answer
from headrace.service.routes.objects import object_router

if TYPE_CHECKING:
    from headrace.hub.hub import Hub
    from headrace.model.definitions import StreamDef


class StreamRoutes:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def router(self) -> APIRouter:
        router = object_router(self._hub, "stream", self.list_streams, self.get_stream)
        add = router.add_api_route
        add("/streams/{name}/sync", self.sync, methods=["POST"], summary="Wait for an epoch")
        add("/streams/{name}/flush", self.flush, methods=["POST"], summary="Make output durable")
        add("/streams/{name}/ping", self.ping, methods=["POST"], summary="Its newest epoch")
        add("/streams/{name}/ingress", self.ingress, methods=["GET"], summary="Counters of its gateway")
        add("/streams/{name}/dead-letters", self.dead_letters, methods=["GET"], summary="Bad records", **TABLE)
        return router

    def list_streams(self) -> list[models.StreamInfo]:
        return declared(self.get_stream, self._hub.catalog.stream_names())

    def get_stream(self, name: str) -> models.StreamInfo:
        stream = self._declared(name)
        handle = Stream(self._hub, stream.name)
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

    def sync(self, name: str, timeout: Wait = 60) -> models.Epoch:
        """Wait until every row read before the call is in the sinks. Returns the epoch."""
        return self._awaited(name, timeout, lambda stream: stream.sync(timeout))

    def flush(self, name: str, timeout: Wait = 60) -> models.Epoch:
        """Wait until all data that the sinks and the gateway have received is durable. Returns the newest epoch."""
        return self._awaited(name, timeout, lambda stream: stream.flush(timeout))

    def ping(self, name: str) -> models.Epoch:
        """Ask the committer for its newest epoch. Does not wait for rows."""
        return models.Epoch(epoch=self._stream(name).ping())

    def ingress(self, name: str) -> dict[str, JsonValue]:
        """Addresses and counters of a pushed stream that runs; empty for other streams."""
        return {key: models.plain(value) for key, value in self._stream(name).ingress().items()}

    def dead_letters(self, name: str, limit: Limit = 100, accept: Annotated[str, Header()] = "application/json") -> Any:
        """As JSON, or as an Arrow stream. 404 if the stream's `dead_letter_sink` is not a memory sink."""
        return table_answer(self._stream(name).dead_letters(), limit, accept)

    def _awaited(self, name: str, timeout: float, act: Callable[[Stream], int]) -> models.Epoch:
        stream = self._stream(name)
        try:
            return models.Epoch(epoch=act(stream))
        except TimeoutError:
            raise StopTimeout(f"no epoch of {name} was committed in {timeout:g} s", advice="Try again.") from None

    def _stream(self, name: str) -> Stream:
        return Stream(self._hub, self._declared(name).name)

    def _declared(self, name: str) -> StreamDef:
        """The declaration of a stream. Raises UnknownStream."""
        catalog = self._hub.catalog
        found = catalog.stream(name)
        if found is None:
            raise unknown(UnknownStream, "stream", name, catalog.stream_names())
        return found
