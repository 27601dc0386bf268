"""Describes in words how a stream is read, for EXPLAIN and DESCRIBE."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.formats import FORMATS
from headrace.formats.codecs import CODECS
from headrace.formats.format_kind import Format
from headrace.formats.tables import TableFormat
from headrace.model.definitions import StreamDef
from headrace.sources import SOURCES
from headrace.sources.files import FILES


@dataclass(frozen=True, slots=True)
class ReadDescription:
    """How a stream is read. `indexer` is the code that finds the records. `skips` is true if it leaves unwanted fields
    unparsed. `in_order` is why one task reads each file in order; empty if several tasks may share a file. `codecs` is
    true if files may be compressed."""

    source: str
    format: str
    indexer: str
    skips: bool
    in_order: str
    codecs: bool
    unit: str = ""  # what tasks share of a file; empty for bytes
    guarantee: str = ""  # how records of another system come into epochs

    @property
    def fields(self) -> str:
        """What happens to fields that no pipeline reads."""
        return "unwanted fields are skipped" if self.skips else "all fields are decoded, wanted or not"

    @property
    def sharing(self) -> str:
        """How tasks share the files."""
        if self.unit:
            return f"each {self.unit} by one task"
        if self.in_order:
            return f"each file in order, by one task ({self.in_order})"
        return "cut among the tasks" + ("; compressed files each in order, by one task" if self.codecs else "")


def _unit(stream: StreamDef, fmt: Format) -> str:
    if stream.fed_by is not None:
        return f"segment of the output of pipeline {stream.fed_by}"
    return fmt.unit if isinstance(fmt, TableFormat) and stream.source == FILES.name else ""


def describe_read(stream: StreamDef) -> ReadDescription:
    """How `stream` is read, as far as its declaration decides it."""
    fmt = FORMATS[stream.format].make(stream.record_schema, stream.options)
    codec = FILES.settings_of(stream).codec if stream.source == FILES.name else "none"
    return ReadDescription(
        source=stream.source,
        format=stream.format,
        indexer=fmt.indexer,
        skips=fmt.skips,
        in_order=fmt.in_order or (f"codec {codec} cannot be cut" if codec in CODECS else ""),
        codecs=codec == "auto",
        unit=_unit(stream, fmt),
        guarantee=SOURCES[stream.source].guarantee,
    )
