"""The messages between a hub and its gateway process: one JSON line each, orders to the process and answers from it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from headrace.ingress.settings import GATEWAY_SETTINGS, GatewaySettings
from headrace.model.codec import dump, load
from headrace.model.definitions import StreamDef


@dataclass(frozen=True, slots=True)
class GatewayOrder:
    """An order about the stream `name`. Only `open` has a directory, and a declaration and settings as stored text: the
    type of the settings depends on the stream's source. `id` is that of the answer."""

    do: Literal["open", "close", "sync", "metrics"]
    name: str
    stream: str = ""
    directory: str = ""
    settings: str = ""
    id: int = 0

    @staticmethod
    def to_open(stream: StreamDef, directory: Path, settings: GatewaySettings) -> GatewayOrder:
        """Take bytes for a stream."""
        return GatewayOrder("open", stream.name, stream=dump(stream), directory=str(directory), settings=dump(settings))

    def opened(self) -> tuple[StreamDef, Path, GatewaySettings]:
        """The declaration, the directory and the settings of a stream to open."""
        stream = load(StreamDef, self.stream)
        return stream, Path(self.directory), load(GATEWAY_SETTINGS[stream.source], self.settings)


@dataclass(frozen=True, slots=True)
class GatewayAnswer:
    """The answer to an order. A `progress` says that the order still runs, and another answer follows. `error` is the
    code, the message and the advice of a failure. `metrics` are None for a stream that is not open."""

    id: int = 0
    progress: str = ""
    error: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    metrics: dict[str, Any] | None = None


def message_line(message: GatewayOrder | GatewayAnswer) -> str:
    """A message as one line. Unlike `headrace.model.codec.dump` it keeps the order of metrics, which DESCRIBE shows."""
    return json.dumps(asdict(message)) + "\n"
