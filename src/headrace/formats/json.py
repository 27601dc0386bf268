"""The formats `json` and `ndjson`: JSON lines, one object per record.

Keys may come in any order. They are matched exactly. A missing key is NULL; of equal keys the last wins. Every record
is checked to be well-formed JSON, whichever columns are wanted. Lines that are only white space are not records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headrace.base.options import boolean, option
from headrace.formats.columns import JSON as JSON_TEXT
from headrace.formats.columns import Syntax
from headrace.formats.format_kind import Decoded, FormatKind, Framed, Preamble
from headrace.formats.format_settings import TextSettings
from headrace.formats.framing import bom_bytes, frame_lines
from headrace.formats.index import FieldIndex, Scanned, decode, view_of
from headrace.formats.kernels import scan_json
from headrace.formats.nested import key_table
from headrace.formats.packing import OffsetsOf, Packed, pack_joined
from headrace.formats.values import Rules
from headrace.model.schema import Schema

_REASONS = {
    scan_json.BAD_JSON: "bad_json",
    scan_json.NOT_AN_OBJECT: "not_an_object",
    scan_json.TOO_DEEP: "too_deep",
    scan_json.TOO_LONG: "record_too_long",
}


class JsonLines:
    """The `json` format. Keeps no state between calls."""

    name = "json"
    indexer = "headrace.formats.kernels.scan_json"
    skips = True
    delimiter = b"\n"
    row_bytes = 0
    in_order = ""
    has_header = False

    def __init__(
        self, schema: Schema, max_record_bytes: int, rules: Rules, specials: bool = True, permissive: bool = False
    ) -> None:
        self.schema = schema
        self.max_record_bytes = max_record_bytes
        self.syntax = Syntax(JSON_TEXT, rules=rules)
        self.specials, self.permissive = specials, permissive

    def preamble(self, head: bytes, first: bool, final: bool) -> Preamble:
        return Preamble(bom_bytes(head, first))

    def frame(self, data: bytes | memoryview, final: bool) -> Framed:
        return frame_lines(data, final, self.delimiter)

    def index(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> FieldIndex:
        buf = view_of(data)
        table = key_table(tuple(self.schema[i].name for i in wanted))
        room = scan_json.count_lines(buf, 10)
        starts = np.empty((len(wanted), room), np.int32)
        ends = np.empty((len(wanted), room), np.int32)
        begins, stops = np.empty(room, np.int32), np.empty(room, np.int32)
        wrong = np.empty((room, 3), np.int32)
        rows, count = scan_json.scan_lines(
            buf, self.max_record_bytes, self.specials, table.keys, table.bounds, table.table, starts, ends, begins,
            stops, wrong,
        )  # fmt: skip
        found = Scanned(
            data=buf,
            origin=origin,
            offset=offset,
            rows=rows,
            begins=begins,
            stops=stops,
            starts=starts,
            ends=ends,
            wrong=wrong[:count].copy(),
        )
        return found.indexed(
            schema=self.schema,
            wanted=wanted,
            syntax=self.syntax,
            bad=found.take_bad(_REASONS, self.max_record_bytes, self.permissive),
            again=lambda data, columns: self.index(data, columns, origin, offset),
            joint=self.delimiter,
        )

    def decode(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> Decoded:
        return decode(self.index(data, wanted, origin, offset), wanted)

    def pack(self, values: Sequence[bytes], number: OffsetsOf) -> Packed:
        """A newline in a message becomes a carriage return: also white space between tokens, also an error inside a
        string."""
        packed = pack_joined(values, self.delimiter, number)
        if packed.plain:
            return packed
        same = self.delimiter.join([value.replace(self.delimiter, b"\r") for value in values])
        return replace(packed, data=same, raw=view_of(packed.data))

    def index_packed(self, packed: Packed, wanted: Sequence[int], origin: str) -> FieldIndex:
        return self.index(packed.data, wanted, origin, 0)


@dataclass(frozen=True, slots=True)
class JsonSettings(TextSettings):
    """The options of `format = 'json'` and `format = 'ndjson'`."""

    allow_non_numeric_numbers: bool = option(
        boolean,
        default=True,
        help="NaN, Infinity, -Infinity, +Infinity, -INF and +INF without quotes are numbers, as in Spark; if false, a "
        "record with one is bad (bad_json)",
    )


def _build(schema: Schema, settings: JsonSettings) -> JsonLines:
    return JsonLines(
        schema,
        settings.max_record_bytes,
        settings.rules,
        specials=settings.allow_non_numeric_numbers,
        permissive=settings.permissive,
    )


JSON = FormatKind("json", "JSON lines, one object per line", JsonSettings, _build)
NDJSON = FormatKind("ndjson", "JSON lines, one object per line", JsonSettings, _build)
