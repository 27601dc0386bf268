"""Routes of sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from headrace.base.unknown import unknown
from headrace.errors import UnknownSink
from headrace.service import models
from headrace.service.routes.common import declared
from headrace.service.routes.objects import object_router
from headrace.sinks import SINKS

if TYPE_CHECKING:
    from headrace.hub.hub import Hub


class SinkRoutes:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def router(self) -> APIRouter:
        return object_router(self._hub, "sink", self.list_sinks, self.get_sink)

    def list_sinks(self) -> list[models.SinkInfo]:
        return declared(self.get_sink, self._hub.catalog.sink_names())

    def get_sink(self, name: str) -> models.SinkInfo:
        catalog = self._hub.catalog
        sink = catalog.sink(name)
        if sink is None:
            raise unknown(UnknownSink, "sink", name, catalog.sink_names())
        return models.SinkInfo(
            name=sink.name,
            type=sink.kind,
            guarantee=SINKS[sink.kind].guarantee_of(sink),
            used_by=catalog.users_of_sink(sink.name),
        )
