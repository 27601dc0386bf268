"""The live status as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import anyio.to_thread
from fastapi import APIRouter, Header, Request
from fastapi.responses import StreamingResponse

from headrace.service.routes.common import ERRORS
from headrace.service.sampling import INTERVAL_SECONDS, Sampler

if TYPE_CHECKING:
    from headrace.hub.hub import Hub


class EventRoutes:
    def __init__(self, hub: Hub) -> None:
        self._sampler = Sampler(hub)

    def router(self) -> APIRouter:
        router = APIRouter(responses=ERRORS, tags=["live"])
        router.add_api_route("/events", self.events, methods=["GET"], summary="Live status as server-sent events")
        return router

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
