"""The sources `tcp` and `http`: clients push bytes, the gateway writes them to a journal, and tasks read the journal.

Unit of parallelism: a block of the journal. Delivery: acknowledged bytes are in exactly one epoch.
"""

from __future__ import annotations

from headrace.errors import BadOption
from headrace.formats import FORMATS
from headrace.ingress.delimiting import finder_of
from headrace.ingress.settings import HttpSettings, TcpSettings
from headrace.model.definitions import StreamDef
from headrace.sources.journal_reader import JournalSource
from headrace.sources.pushed_facts import PUSHED_FACTS
from headrace.sources.source_kind import SourceKind


def verify_delimited(stream: StreamDef) -> None:
    """Raise BadOption unless the ends of records can be found in any part of the stream's bytes."""
    fmt = FORMATS[stream.format].make(stream.record_schema, stream.options)
    if finder_of(fmt) is None:
        raise BadOption(
            f"source '{stream.source}' cannot find where a record of format '{stream.format}' ends",
            advice="Use a format whose records end with a delimiter: json, csv or text. CSV with multiline = 'true' "
            "needs a delimiter of one byte and records that end with a newline.",
            option="format",
            value=stream.format,
        )
    if fmt.has_header:
        raise BadOption(
            f"source '{stream.source}' has no header lines", advice="Remove header.", option="header", value="true"
        )


def _check_http(stream: StreamDef, settings: HttpSettings) -> None:
    verify_delimited(stream)


def _check_tcp(stream: StreamDef, settings: TcpSettings) -> None:
    verify_delimited(stream)
    if not settings.listen and not settings.connect:
        raise BadOption(
            "source 'tcp' needs 'listen' or 'connect'",
            advice="listen = '127.0.0.1:7000' waits for clients; connect = 'host:7000' reads from a server.",
            option="listen",
        )


TCP = SourceKind(
    name="tcp",
    help="bytes from TCP connections, in either direction",
    settings=TcpSettings,
    build=JournalSource,
    check_settings=_check_tcp,
    pushed=True,
    metadata=PUSHED_FACTS,
    guarantee="acknowledged bytes are in exactly one epoch",
)
HTTP = SourceKind(
    name="http",
    help="records in the bodies of HTTP requests",
    settings=HttpSettings,
    build=JournalSource,
    check_settings=_check_http,
    pushed=True,
    metadata=PUSHED_FACTS,
    guarantee="acknowledged bytes are in exactly one epoch",
)
