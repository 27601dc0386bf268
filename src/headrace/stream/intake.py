"""Opens and closes a pushed stream in the gateway. Does nothing for streams that read their source themselves."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.base.durable import write_atomic
from headrace.errors import HeadraceError
from headrace.ingress.gateway_service import GatewayService
from headrace.ingress.mark import require_journal
from headrace.model.definitions import StreamDef
from headrace.sources import SOURCES
from headrace.sources.journal_reader import JOURNAL, place_of

_DROPPED = "dropped.json"


def read_dropped(directory: Path) -> int:
    """How many records of a stream the gateway gave up, as the last process that ran the stream stored it."""
    try:
        return int(json.loads((directory / "source" / _DROPPED).read_bytes()))
    except (OSError, ValueError, TypeError):  # only a statistic: the counters of the journal decide
        return 0


class Intake:
    """The gateway's work for one stream. `directory` holds the stream's state."""

    def __init__(self, gateway: GatewayService, stream: StreamDef, directory: Path) -> None:
        self._gateway, self._stream, self._directory = gateway, stream, directory
        self._dropped = read_dropped(directory)

    def open(self, end: dict[str, Any] | None) -> None:
        """Take bytes from now on. A pushed stream takes bytes for as long as its query should run. `end` is the offset
        of the newest committed epoch. Raises JournalDamaged when the journal that this epoch was read from is gone."""
        kind = SOURCES[self._stream.source]
        if kind.pushed:
            settings = kind.settings_of(self._stream)
            sealed = {o.name: getattr(settings, o.name) for o in kind.options if o.secret}
            revealed = {name: self._gateway.reveal(value) for name, value in sealed.items() if value}
            directory = self._directory / "source" / JOURNAL
            require_journal(directory, place_of((end or {}).get("source")))
            self._gateway.open(self._stream, directory, replace(settings, **revealed))

    def redeclare(self, stream: StreamDef) -> None:
        """Take the declaration as it is now. A gateway that takes bytes for the stream starts over with it."""
        changed, self._stream = stream.options != self._stream.options, stream
        if changed and self._gateway.takes(stream.name):
            self.close()
            self.open(None)

    def sync(self) -> None:
        """Return when all bytes that were taken so far are in the journal."""
        self._gateway.sync(self._stream.name)

    def close(self) -> None:
        """Take no more bytes. Bytes that were not read wait in the journal."""
        self.dropped()
        self._gateway.close(self._stream.name)

    @property
    def problem(self) -> str:
        """Why the stream takes no bytes although it should. Empty if it does, or takes none at all. Never waits."""
        return self._gateway.problem(self._stream.name)

    def dropped(self) -> int:
        """How many records the gateway gave up under overload. While it takes no bytes or does not answer, this is its
        last report."""
        with contextlib.suppress(HeadraceError):
            classes = self.facts().get("classes", {})
            found = sum(counters["dropped_records"] for counters in classes.values())
            if found > self._dropped:
                self._dropped = found
                with contextlib.suppress(OSError):  # a full disk, or the stream is being dropped
                    write_atomic(self._directory / "source" / _DROPPED, json.dumps(found).encode())
        return self._dropped

    def facts(self) -> dict[str, Any]:
        """The gateway's addresses and metrics for this stream; empty when it takes no bytes."""
        if not SOURCES[self._stream.source].pushed:
            return {}
        metrics = self._gateway.metrics(self._stream.name)
        return {} if metrics is None else {"addresses": self._gateway.addresses(self._stream.name), **metrics}
