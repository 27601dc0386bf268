"""Routes of savepoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from headrace.service import models
from headrace.service.routes.common import ERRORS

if TYPE_CHECKING:
    from headrace.hub.hub import Hub


class SavepointRoutes:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def router(self) -> APIRouter:
        router = APIRouter(responses=ERRORS, tags=["savepoints"])
        add = router.add_api_route
        add("/savepoints", self.list_savepoints, methods=["GET"], summary="List savepoints")
        add("/savepoints", self.savepoint, methods=["POST"], status_code=201, summary="Take one")
        return router

    def list_savepoints(self) -> list[models.SavepointInfo]:
        return [models.SavepointInfo(name=p.name, path=str(p)) for p in self._hub.savepoints()]

    def savepoint(self, request: models.SavepointRequest) -> models.SavepointInfo:
        path = self._hub.savepoint(request.name, request.stream)
        return models.SavepointInfo(name=path.name, path=str(path))
