"""headrace: any number of SQL pipelines share one raw stream on Apache Spark.

>>> with headrace.connect(state_dir=".first") as hub:
...     hub.sql("CREATE STREAM s (device STRING, temp DOUBLE) WITH (source = 'files', path = 'data', format = 'json')")
...     hub.sql("CREATE SINK kept WITH (type = 'memory')")
...     hub.sql("CREATE PIPELINE hot INTO kept AS SELECT device, temp FROM s WHERE temp > 30")
...     hub.streams["s"].sync() >= 0
...     hub.pipelines["hot"].results().num_rows
[created stream s]
[created sink kept]
[created pipeline hot]
True
37

The names below are imported on first use. Spark's tasks import this package too and need none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.hub.hub import Hub
    from headrace.hub.objects import Pipeline, Stream
    from headrace.model.status import PipelineStatus, StreamStatus
    from headrace.service.client import RemoteHub
    from headrace.service.connecting import connect

__version__ = "0.1.0"

__all__ = ["Hub", "Pipeline", "PipelineStatus", "RemoteHub", "Stream", "StreamStatus", "__version__", "connect"]

_HOMES = {
    "Hub": "headrace.hub.hub",
    "connect": "headrace.service.connecting",
    "RemoteHub": "headrace.service.client",
    "Pipeline": "headrace.hub.objects",
    "Stream": "headrace.hub.objects",
    "PipelineStatus": "headrace.model.status",
    "StreamStatus": "headrace.model.status",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
