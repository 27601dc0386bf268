"""The bytes of one pushed stream: when the gateway takes them. A stream that reads by itself has none."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from headrace.durable import write_atomic
from headrace.errors import HeadraceError
from headrace.ingress.service import GatewayService
from headrace.program import StreamDef
from headrace.sources import SOURCES
from headrace.sources.journal import JOURNAL, place_of, require_journal

_DROPPED = "dropped.json"


def read_dropped(directory: Path) -> int:
    """How many records of a stream the gateway gave up, as far as its last owner knew."""
    try:
        return int(json.loads((directory / "source" / _DROPPED).read_bytes()))
    except (OSError, ValueError, TypeError):  # only a statistic, and the journal's own counters are the truth
        return 0


class Intake:
    """What the hub's gateway does for one stream, whose state is in `directory`."""

    def __init__(self, gateway: GatewayService, stream: StreamDef, directory: Path) -> None:
        self._gateway, self._stream, self._directory = gateway, stream, directory
        self._dropped = read_dropped(directory)

    def open(self, end: dict[str, Any] | None) -> None:
        """Take bytes from now on: a pushed stream does so as long as its query is meant to run. `end` is the offset of
        the newest committed epoch. Raises JournalDamaged when the journal is gone that it was read from."""
        kind = SOURCES[self._stream.source]
        if kind.pushed:
            values = kind.values(self._stream)
            secret = [o.name for o in kind.options if o.secret and values[o.name]]
            values |= {name: self._gateway.reveal(values[name]) for name in secret}
            directory = self._directory / "source" / JOURNAL
            require_journal(directory, place_of((end or {}).get("source")))
            self._gateway.open(self._stream, directory, values)

    def sync(self) -> None:
        """Returns when everything that was taken so far is in the journal."""
        self._gateway.sync(self._stream.name)

    def close(self) -> None:
        """Take no more. What nobody has read waits in the journal."""
        self.dropped()
        self._gateway.close(self._stream.name)

    def dropped(self) -> int:
        """How many records the gateway gave up under overload, as far as it is known: while it takes no bytes, and when
        it does not answer, this is what it said last."""
        with contextlib.suppress(HeadraceError):
            classes = self.facts().get("classes", {})
            found = sum(counters["dropped_records"] for counters in classes.values())
            if found > self._dropped:
                self._dropped = found
                with contextlib.suppress(OSError):  # a full disk, or the stream is being dropped
                    write_atomic(self._directory / "source" / _DROPPED, json.dumps(found).encode())
        return self._dropped

    def facts(self) -> dict[str, Any]:
        """What the gateway says of this stream: addresses and metrics; empty when it takes no bytes."""
        if not SOURCES[self._stream.source].pushed:
            return {}
        metrics = self._gateway.metrics(self._stream.name)
        return {} if metrics is None else {"addresses": self._gateway.addresses(self._stream.name), **metrics}
