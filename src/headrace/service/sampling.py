"""Live figures of a hub: one sample a second for all readers, kept for those who come back after a break."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import JsonValue

from headrace.errors import HeadraceError
from headrace.service.models import status_json

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

INTERVAL_SECONDS = 1.0
KEPT = 300  # five minutes: a reader that was away longer gets the newest sample and goes on from there


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of all streams and pipelines at one moment. `id` counts up by one per sample."""

    id: int
    at: float
    streams: dict[str, dict[str, JsonValue]]
    pipelines: dict[str, dict[str, JsonValue]]


class Sampler:
    """Takes samples while somebody reads them. Any thread may call; one sample at a time is taken."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        self._taken_at = 0.0

    def latest(self) -> Sample:
        """A sample that is at most one interval old. The first caller takes it, the others share it."""
        with self._lock:
            now = time.monotonic()
            if not self._samples or now - self._taken_at >= INTERVAL_SECONDS * 0.9:
                number = self._samples[-1].id + 1 if self._samples else 1
                self._samples.append(self._take(number))
                self._taken_at = now
            return self._samples[-1]

    def after(self, last: int) -> list[Sample]:
        """The samples after number `last` that are still kept, oldest first."""
        with self._lock:
            return [s for s in self._samples if s.id > last]

    def _take(self, number: int) -> Sample:
        streams: dict[str, dict[str, JsonValue]] = {}
        pipelines: dict[str, dict[str, JsonValue]] = {}
        for name, stream in self._hub.streams.items():
            try:
                streams[name] = status_json(stream.status())
            except HeadraceError:  # dropped since it was listed
                continue
        for name, pipeline in self._hub.pipelines.items():
            try:
                pipelines[name] = _compact(status_json(pipeline.status()))
            except HeadraceError:
                continue
        return Sample(number, time.time(), streams, pipelines)


def _compact(status: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """A status without its empty parts and its bridge counters: a sample of hundreds of pipelines stays small."""
    return {k: v for k, v in status.items() if k not in ("sent", "received") and v not in ([], {}, "")}
