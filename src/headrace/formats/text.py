"""The format `text`: every record is one value of one column. An empty record is an empty value, not NULL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.base.options import option
from headrace.errors import BadOption
from headrace.formats.columns import PLAIN, ByteArray, Places, Syntax
from headrace.formats.csv import delimiter_option
from headrace.formats.format_kind import Decoded, FormatKind, Framed, Preamble
from headrace.formats.format_settings import Utf8Settings
from headrace.formats.framing import bom_bytes, frame_lines, unclear
from headrace.formats.index import FieldIndex, bad_structure, decode, view_of
from headrace.formats.kernels.tokens import count_tokens, split_tokens
from headrace.formats.packing import OffsetsOf, Packed, pack_joined
from headrace.formats.values import Rules
from headrace.model.schema import Schema


class TextRecords:
    """The `text` format. Keeps no state between calls. An empty `ending` means LF or CRLF."""

    name = "text"
    indexer = "headrace.formats.kernels.tokens.split_tokens"
    skips = True
    row_bytes = 0
    has_header = False

    def __init__(self, schema: Schema, ending: bytes, max_record_bytes: int, rules: Rules) -> None:
        self.schema = schema
        self.max_record_bytes = max_record_bytes
        self.ending = ending
        self.syntax = Syntax(PLAIN, rules=rules)
        self._token = np.frombuffer(self.delimiter, np.uint8)

    @property
    def delimiter(self) -> bytes:
        return self.ending or b"\n"

    @property
    def in_order(self) -> str:
        return unclear(self.delimiter)

    def preamble(self, head: bytes, first: bool, final: bool) -> Preamble:
        return Preamble(bom_bytes(head, first))

    def frame(self, data: bytes | memoryview, final: bool) -> Framed:
        return frame_lines(data, final, self.delimiter)

    def index(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> FieldIndex:
        buf = view_of(data)
        room = count_tokens(buf, self._token) + 1
        begins, stops = np.empty(room, np.int32), np.empty(room, np.int32)
        rows = split_tokens(buf, self._token, self.ending == b"", begins, stops)
        return self._indexed(buf=buf, begins=begins[:rows], stops=stops[:rows], origin=origin, offset=offset)

    def _indexed(self, buf: ByteArray, begins: Places, stops: Places, origin: str, offset: int) -> FieldIndex:
        long = stops - begins > self.max_record_bytes
        wrong = np.stack([begins[long], stops[long], np.zeros(np.count_nonzero(long), np.int32)], axis=1)
        bad = bad_structure(
            data=buf,
            origin=origin,
            offset=offset,
            wrong=wrong,
            reasons={0: "record_too_long"},
            longest=self.max_record_bytes,
        )
        begins, stops = begins[~long], stops[~long]
        slots = {0: 0}
        starts, ends = begins.reshape(1, -1), stops.reshape(1, -1)
        return FieldIndex(
            schema=self.schema,
            data=buf,
            rows=len(begins),
            begins=begins,
            stops=stops,
            starts=starts,
            ends=ends,
            slots=slots,
            syntax=self.syntax,
            origin=origin,
            offset=offset,
            bad=bad,
        )

    def decode(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> Decoded:
        return decode(self.index(data, wanted, origin, offset), wanted)

    def pack(self, values: Sequence[bytes], number: OffsetsOf) -> Packed:
        """A byte between the messages gives an empty one a place of its own."""
        return pack_joined(values, b"\n", number)

    def index_packed(self, packed: Packed, wanted: Sequence[int], origin: str) -> FieldIndex:
        return self._indexed(
            buf=view_of(packed.data), begins=packed.begins, stops=packed.stops, origin=origin, offset=0
        )


def one_column(schema: Schema, name: str) -> None:
    """Raise BadOption unless the schema is one STRING or BINARY column."""
    if len(schema) != 1 or schema[0].type.ddl not in ("STRING", "BINARY"):
        raise BadOption(
            f"format '{name}' needs exactly one column, of type STRING or BINARY",
            advice="Declare one such column, and split it with SQL functions.",
            option="format",
            value=name,
        )


@dataclass(frozen=True, slots=True)
class TextRecordSettings(Utf8Settings):
    """The options of `format = 'text'`."""

    record_delimiter: bytes = option(delimiter_option, default=b"", help="after records; LF or CRLF if absent")


def _build(schema: Schema, settings: TextRecordSettings) -> TextRecords:
    one_column(schema, "text")
    return TextRecords(schema, settings.record_delimiter, settings.max_record_bytes, settings.rules)


TEXT = FormatKind("text", "every line is one value", TextRecordSettings, _build)
