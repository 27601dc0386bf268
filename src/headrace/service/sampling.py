"""Live figures of a hub: one sample a second for all readers, kept for those who come back after a break."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import JsonValue

from headrace.errors import HeadraceError
from headrace.service.models import plain, status_json
from headrace.status import Traffic

if TYPE_CHECKING:
    from headrace.hub import Hub
    from headrace.objects import Stream

INTERVAL_SECONDS = 1.0
KEPT = 300  # five minutes: a reader that was away longer gets the newest sample and goes on from there
KEPT_BYTES = 32 << 20  # fewer samples are kept when those of hundreds of pipelines are large


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of all streams and pipelines at one moment, as JSON text. `id` counts up by one per sample."""

    id: int
    text: str

    @property
    def event(self) -> str:
        """The sample as a server-sent event."""
        return f"id: {self.id}\nevent: sample\ndata: {self.text}\n\n"


class Sampler:
    """Takes samples while somebody reads them. Any thread may call; one sample at a time is taken, and encoded once
    for all readers."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        self._bytes = 0
        self._taken_at = 0.0

    def latest(self) -> Sample:
        """A sample that is at most one interval old. The first caller takes it, the others share it."""
        with self._lock:
            now = time.monotonic()
            if not self._samples or now - self._taken_at >= INTERVAL_SECONDS * 0.9:
                self._keep(self._take(self._samples[-1].id + 1 if self._samples else 1))
                self._taken_at = now
            return self._samples[-1]

    def fresh(self) -> Sample | None:
        """The newest sample if it is young enough. Never waits."""
        if self._samples and time.monotonic() - self._taken_at < INTERVAL_SECONDS * 0.9:
            return self._samples[-1]
        return None

    def after(self, last: int) -> list[Sample]:
        """The samples after number `last` that are still kept, oldest first."""
        with self._lock:
            return [s for s in self._samples if s.id > last]

    def _keep(self, sample: Sample) -> None:
        if len(self._samples) == KEPT:
            self._bytes -= len(self._samples.popleft().text)
        self._samples.append(sample)
        self._bytes += len(sample.text)
        while self._bytes > KEPT_BYTES and len(self._samples) > 1:
            self._bytes -= len(self._samples.popleft().text)

    def _take(self, number: int) -> Sample:
        pipelines: dict[str, dict[str, JsonValue]] = {}
        bridges: dict[str, tuple[Traffic, Traffic]] = {}
        for name, pipeline in self._hub.pipelines.items():
            try:
                status = pipeline.status()
            except HeadraceError:  # dropped since it was listed
                continue
            pipelines[name] = _compact(status_json(status))
            sent, received = bridges.get(status.stream, (Traffic(), Traffic()))
            bridges[status.stream] = (sent + status.sent, received + status.received)
        streams: dict[str, dict[str, JsonValue]] = {}
        for name, stream in self._hub.streams.items():
            try:
                sent, received = bridges.get(name, (Traffic(), Traffic()))
                bridge = {"sent": plain(sent), "received": plain(received)}
                streams[name] = status_json(stream.status()) | {"bridge": bridge, "gateway": _gateway(stream)}
            except HeadraceError:
                continue
        facts = {"id": number, "at": time.time(), "streams": streams, "pipelines": pipelines}
        return Sample(number, json.dumps(facts, separators=(",", ":")))


def _gateway(stream: Stream) -> dict[str, JsonValue]:
    """Whether a pushed stream's gateway takes bytes, and how full its journal is; empty for other streams."""
    try:
        found = stream.ingress()
    except HeadraceError:
        return {}
    return {k: plain(v) for k, v in found.items() if k in ("state", "journal_bytes", "journal_limit", "pauses")}


def _compact(status: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """A status without its empty parts and its bridge counters: a sample of hundreds of pipelines stays small."""
    return {k: v for k, v in status.items() if k not in ("sent", "received") and v not in ([], {}, "")}
