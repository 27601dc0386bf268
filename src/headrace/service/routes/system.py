"""Routes of the service itself: health, readiness, metrics, and the files of the live page."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

import headrace
from headrace.service import models
from headrace.service.metrics import exposition
from headrace.service.readiness import require_ready
from headrace.service.routes.common import ERRORS

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

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


class SystemRoutes:
    """`startup` returns what the process still does before the hub can be ready; empty if nothing."""

    def __init__(self, hub: Hub, startup: Callable[[], str]) -> None:
        self._hub, self._startup = hub, startup

    def router(self) -> APIRouter:
        router = APIRouter(tags=["service"])
        add = router.add_api_route
        add("/health", self.health, methods=["GET"], summary="Is the process up?")
        add(
            "/ready",
            self.ready,
            methods=["GET"],
            summary="Does everything run that should run?",
            responses={503: ERRORS[503]},
        )
        add("/metrics", self.metrics, methods=["GET"], summary="Prometheus metrics", response_class=PlainTextResponse)
        for path in ASSETS:
            add(path, _asset(path), methods=["GET"], include_in_schema=False)
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


def _asset(path: str) -> Any:
    name, media_type = ASSETS[path]
    body = resources.files("headrace.service").joinpath("page", name).read_bytes()

    async def serve() -> Response:
        return Response(body, media_type=media_type, headers=PAGE_HEADERS)

    return serve
