"""The format `length_prefixed`: each record is a length, then that many bytes, which are one value of one column.

There is no delimiter to search for, so one task reads each file in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headrace.base.options import choice, option
from headrace.formats.bad import BadRecords, bad_frame
from headrace.formats.columns import PLAIN, Syntax
from headrace.formats.format_kind import BadRecord, Decoded, FormatKind, Framed, Preamble, too_long
from headrace.formats.format_settings import Utf8Settings
from headrace.formats.index import FieldIndex, decode, view_of
from headrace.formats.kernels.scan_frames import scan_frames
from headrace.formats.text import one_column
from headrace.formats.values import Rules
from headrace.model.schema import Schema


class LengthPrefixed:
    """The `length_prefixed` format. Keeps no state between calls."""

    name = "length_prefixed"
    indexer = "headrace.formats.kernels.scan_frames"
    skips = True
    delimiter = b""
    row_bytes = 0
    has_header = False
    in_order = "the beginning of a record cannot be found from the middle of a file"

    def __init__(self, schema: Schema, width: int, order: str, max_record_bytes: int, rules: Rules) -> None:
        self.schema = schema
        self.width, self.order = width, order
        self.max_record_bytes = max_record_bytes
        self.syntax = Syntax(PLAIN, rules=rules)

    def preamble(self, head: bytes, first: bool, final: bool) -> Preamble:
        return Preamble(0)

    def frame(self, data: bytes | memoryview, final: bool) -> Framed:
        buf, big = view_of(data), self.order == "big"
        _, whole, length = scan_frames(buf, self.width, big, self.max_record_bytes, *_NOWHERE)
        if length > self.max_record_bytes:
            return Framed(whole, self.width + length)
        return Framed(len(data) if final else whole)

    def index(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> FieldIndex:
        buf = view_of(data)
        room = len(buf) // self.width + 1
        begins, stops = np.empty(room, np.int32), np.empty(room, np.int32)
        limit = max(self.max_record_bytes, len(buf))
        rows, whole, _ = scan_frames(buf, self.width, self.order == "big", limit, begins, stops)
        bad: list[BadRecord] = []
        begins, stops = begins[:rows], stops[:rows]
        if whole < len(buf):
            bad.append(bad_frame(origin, offset + whole, buf[whole : whole + 1024].tobytes()))
        long = np.flatnonzero(stops - begins > self.max_record_bytes)
        for i in long.tolist():
            raw = buf[begins[i] : stops[i]][: self.max_record_bytes].tobytes()
            bad.append(too_long(origin, offset + int(begins[i]) - self.width, raw, self.max_record_bytes))
        if len(long):
            begins, stops = np.delete(begins, long), np.delete(stops, long)
        slots = {0: 0}
        starts, ends = begins.reshape(1, -1), stops.reshape(1, -1)
        records = np.maximum(begins - np.int32(self.width), 0)
        return FieldIndex(
            schema=self.schema,
            data=buf,
            rows=len(begins),
            begins=records,
            stops=stops,
            starts=starts,
            ends=ends,
            slots=slots,
            syntax=self.syntax,
            origin=origin,
            offset=offset,
            bad=BadRecords.of(bad),
        )

    def decode(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> Decoded:
        return decode(self.index(data, wanted, origin, offset), wanted)


_NOWHERE = (np.empty(0, np.int32), np.empty(0, np.int32))


def _width(value: str) -> int:
    if value not in ("1", "2", "4", "8"):
        raise ValueError("1, 2, 4 or 8")
    return int(value)


@dataclass(frozen=True, slots=True)
class LengthPrefixedSettings(Utf8Settings):
    """The options of `format = 'length_prefixed'`."""

    length_bytes: int = option(_width, default=4, help="width of the length: 1, 2, 4 or 8 bytes")
    byte_order: Literal["big", "little"] = option(choice("big", "little"), default="big", help="of the length")


def _build(schema: Schema, settings: LengthPrefixedSettings) -> LengthPrefixed:
    one_column(schema, "length_prefixed")
    return LengthPrefixed(
        schema,
        settings.length_bytes,
        settings.byte_order,
        max_record_bytes=settings.max_record_bytes,
        rules=settings.rules,
    )


LENGTH_PREFIXED = FormatKind(
    "length_prefixed", "a length, then that many bytes, which are one value", LengthPrefixedSettings, _build
)
