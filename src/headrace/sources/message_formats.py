"""Which formats can take a message of a broker as a record."""

from __future__ import annotations

from headrace.errors import BadOption
from headrace.formats import FORMATS
from headrace.formats.packing import MessageFormat
from headrace.model.definitions import StreamDef

_FRAMING = ("record_delimiter", "header", "multiline")  # options of formats that find records in a stream of bytes


def check_message_format(stream: StreamDef) -> None:
    """Raise BadOption unless the format can take a message as a record."""
    kind = FORMATS[stream.format]
    if not isinstance(kind.make(stream.record_schema, stream.options), MessageFormat):
        raise BadOption(
            f"source '{stream.source}' cannot take a message as a record of format '{stream.format}'",
            advice="Use json, csv, text, or avro with schema or schema_file. A message is a record by its own "
            "boundary: it needs no length.",
            option="format",
            value=stream.format,
        )
    for name in _FRAMING:
        if name in stream.options:
            raise BadOption(
                f"{name} has no effect with source '{stream.source}'",
                advice=f"Remove {name}: every message is one record, whatever bytes it has.",
                option=name,
            )
