"""Sources: where a stream's bytes come from. `SOURCES` is the registry. See `headrace.sources.source_kind`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.base.options import check_options
from headrace.base.plugins import Registry
from headrace.base.unknown import unknown
from headrace.errors import UnknownFormat, UnknownSource
from headrace.formats import FORMATS
from headrace.model.definitions import StreamDef
from headrace.sources.buffers import BUFFERS
from headrace.sources.derived import PIPELINE
from headrace.sources.files import FILES
from headrace.sources.generator import GENERATOR
from headrace.sources.kafka import KAFKA
from headrace.sources.mqtt import MQTT
from headrace.sources.nats import NATS
from headrace.sources.nats_core import NATS_CORE
from headrace.sources.push import HTTP, TCP
from headrace.sources.source_kind import SourceKind

SOURCES: Registry[SourceKind[Any]] = Registry(
    "headrace.sources",
    SourceKind,
    (FILES, GENERATOR, TCP, HTTP, BUFFERS, KAFKA, MQTT, NATS, NATS_CORE),
    internal=(PIPELINE,),
)


def check_stream(stream: StreamDef) -> None:
    """Raise what CREATE STREAM rejects about the source, the format and their options: unknown names, options that
    neither has, bad values, missing paths."""
    source, fmt = SOURCES.get(stream.source), FORMATS.get(stream.format)
    if source is None:
        raise unknown(UnknownSource, "source", stream.source, sorted(SOURCES))
    if fmt is None:
        raise unknown(UnknownFormat, "format", stream.format, sorted(FORMATS))
    owner = f"source '{source.name}' with format '{fmt.name}'"
    check_options(owner, (*source.options, *fmt.options), stream.options)
    fmt.make(stream.record_schema, stream.options)
    source.check(stream)


def keeps_progress(old: StreamDef, new: StreamDef) -> bool:
    """True if a stream may be changed from `old` to `new` and continue where it was: they differ only in options that
    the source allows to change."""

    def fixed(stream: StreamDef) -> StreamDef:
        changeable = SOURCES[stream.source].changeable
        kept = {k: v for k, v in stream.options.items() if k.lower().partition(".")[0] not in changeable}
        return replace(stream, sql="", options=kept)

    return fixed(old) == fixed(new)


__all__ = ["SOURCES", "SourceKind", "check_stream", "keeps_progress"]
