"""The format `csv`: delimited text, one record per line.

A record is a line (LF or CRLF) unless `record_delimiter` says otherwise. Empty lines and comments are not records. A
quote has a meaning only at the beginning of a field; inside a quoted field, two quotes stand for one. An unquoted null
token (by default the empty field) is NULL, a quoted one is text. The quotes and the number of fields of every record
are checked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from headrace.base.options import boolean, choice, option
from headrace.errors import BadOption, HeaderMismatch
from headrace.formats.columns import QUOTED, Syntax, unquoted
from headrace.formats.format_kind import Decoded, FormatKind, Framed, Preamble
from headrace.formats.format_settings import TextSettings
from headrace.formats.framing import bom_bytes, frame_lines, unclear
from headrace.formats.index import FieldIndex, Scanned, decode, view_of
from headrace.formats.kernels import scan_csv
from headrace.formats.kernels.tokens import count_tokens
from headrace.formats.packing import OffsetsOf, Packed, pack_joined
from headrace.formats.values import Rules
from headrace.model.schema import Decimal, Scalar, Schema

_REASONS = {
    scan_csv.OPEN_QUOTE: "open_quote",
    scan_csv.BAD_QUOTE: "bad_quote",
    scan_csv.FIELD_COUNT: "field_count",
    scan_csv.TOO_LONG: "record_too_long",
}


# Between messages with newlines. It is random, so that no message contains it, and does not overlap itself.
_SEPARATOR = b"\x1e" + os.urandom(14).replace(b"\x1e", b"\x1d").replace(b"\x1c", b"\x1d") + b"\x1c"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file is written. An empty `ending` means LF or CRLF. An empty `quote`, `escape` or `comment` means none."""

    delimiter: bytes = b","
    ending: bytes = b""
    quote: bytes = b'"'
    escape: bytes = b""
    comment: bytes = b""
    nulls: tuple[bytes, ...] = (b"",)
    header: bool = False
    multiline: bool = False
    ragged: bool = False
    trailing: bool = False

    @property
    def simple(self) -> bool:
        """True if the fast scanner can read the dialect."""
        plain = len(self.delimiter) == 1 and self.ending in (b"", b"\n")
        return plain and self.escape in (b"", self.quote) and not self.multiline


class Csv:
    """The `csv` format. Keeps no state between calls."""

    name = "csv"
    skips = True
    row_bytes = 0

    def __init__(
        self, schema: Schema, dialect: Dialect, max_record_bytes: int, rules: Rules, permissive: bool = False
    ) -> None:
        self.schema = schema
        self.permissive = permissive
        self.dialect = dialect
        self.max_record_bytes = max_record_bytes
        self.indexer = f"headrace.formats.kernels.scan_csv.{'scan_rows' if dialect.simple else 'scan_any'}"
        quote, escape = _code(dialect.quote), _code(dialect.escape)
        self.syntax = Syntax(QUOTED, quote, escape, rules)
        self._codes = np.zeros(scan_csv.DIALECT, np.int32)
        for place, value in (
            (scan_csv.DELIMITER, dialect.delimiter[0]),
            (scan_csv.QUOTE, quote),
            (scan_csv.ESCAPE, escape),
            (scan_csv.COMMENT, _code(dialect.comment)),
            (scan_csv.CRLF, dialect.ending == b""),
            (scan_csv.RAGGED, dialect.ragged),
            (scan_csv.TRAILING, dialect.trailing),
            (scan_csv.MULTILINE, dialect.multiline),
            (scan_csv.LONGEST, max_record_bytes),
        ):
            self._codes[place] = value
        self._delimiter = np.frombuffer(dialect.delimiter, np.uint8)
        self._ending = np.frombuffer(self.delimiter, np.uint8)
        self._nulls = np.frombuffer(b"".join(dialect.nulls) + b"\0", np.uint8)
        self._null_bounds = np.cumsum([0, *map(len, dialect.nulls)]).astype(np.int32)

    @property
    def delimiter(self) -> bytes:
        return self.dialect.ending or b"\n"

    @property
    def has_header(self) -> bool:
        return self.dialect.header

    @property
    def in_order(self) -> str:
        return "multiline: quoted fields may contain newlines" if self.dialect.multiline else unclear(self.delimiter)

    def preamble(self, head: bytes, first: bool, final: bool) -> Preamble:
        begin = bom_bytes(head, first)
        if not self.dialect.header:
            return Preamble(begin)
        size = len(self.delimiter)
        while begin < len(head):
            end = head.find(self.delimiter, begin)
            if end < 0 and not final:
                return Preamble(begin, more=True)
            end = len(head) if end < 0 else end
            line = head[begin:end]
            line = line.removesuffix(b"\r") if self.dialect.ending == b"" else line
            begin = min(len(head), end + size)
            if line and not (self.dialect.comment and line.startswith(self.dialect.comment)):
                self._check_header(line)
                return Preamble(begin)
        return Preamble(begin, more=not final)

    def _check_header(self, line: bytes) -> None:
        names = [name.decode("utf-8", "replace").strip() for name in self._split(line)]
        declared = list(self.schema.names)
        if self.dialect.trailing and len(names) == len(declared) + 1 and line.endswith(self.dialect.delimiter):
            names.pop()
        if [n.lower() for n in names] != [d.lower() for d in declared]:
            raise HeaderMismatch(
                f"the header names {', '.join(names[:20])}",
                advice=f"The stream declares {', '.join(declared[:20])}, in this order. Declare the columns as the "
                "file has them, or remove the header and set header = 'false'.",
                header=names,
                declared=declared,
            )

    def _split(self, line: bytes) -> list[bytes]:
        """Split a header line into fields. A quote that is never closed is text."""
        fields: list[bytes] = []
        at, quote = 0, self.dialect.quote
        while True:
            closed = line.find(quote, at + 1) if quote and line.startswith(quote, at) else -1
            while closed >= 0 and line.startswith(quote, closed + 1):
                closed = line.find(quote, closed + 2)
            end = line.find(self.dialect.delimiter, max(closed, at))
            end = len(line) if end < 0 else end
            inside = unquoted(line[at + 1 : closed], _code(quote), _code(self.dialect.escape)) if closed >= 0 else None
            fields.append(line[at:end] if inside is None else inside)
            if end == len(line):
                return fields
            at = end + len(self.dialect.delimiter)

    def frame(self, data: bytes | memoryview, final: bool) -> Framed:
        if not self.dialect.multiline:
            return frame_lines(data, final, self.delimiter)
        return Framed(scan_csv.frame_quoted(view_of(data), final, self._codes, self._delimiter, self._ending))

    def index(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> FieldIndex:
        buf = view_of(data)
        room = count_tokens(buf, self._ending) + 1
        slots = np.full(len(self.schema), -1, np.int32)
        slots[list(wanted)] = np.arange(len(wanted), dtype=np.int32)
        starts = np.empty((len(wanted), room), np.int32)
        ends = np.empty((len(wanted), room), np.int32)
        begins, stops = np.empty(room, np.int32), np.empty(room, np.int32)
        wrong = np.empty((room, 3), np.int32)
        out = (self._nulls, self._null_bounds, slots, starts, ends, begins, stops, wrong)
        if self.dialect.simple:
            rows, count = scan_csv.scan_rows(buf, self._codes, *out)
        else:
            rows, count = scan_csv.scan_any(buf, self._codes, self._delimiter, self._ending, *out)
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
            joint=b"\r\n" if self.dialect.ending == b"" else self.delimiter,
        )

    def decode(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> Decoded:
        return decode(self.index(data, wanted, origin, offset), wanted)

    def pack(self, values: Sequence[bytes], number: OffsetsOf) -> Packed:
        """A line end at the end of a message is not part of it. Other newlines are: then the messages are separated by
        bytes that none of them contains."""
        packed = pack_joined(values, b"\n", number)
        if packed.plain:
            return packed
        values = [value.removesuffix(b"\n").removesuffix(b"\r") for value in values]
        packed = pack_joined(values, b"\n", number)
        if packed.plain:
            return packed
        return replace(pack_joined(values, _SEPARATOR, number), plain=False)

    def index_packed(self, packed: Packed, wanted: Sequence[int], origin: str) -> FieldIndex:
        if packed.plain:
            return self.index(packed.data, wanted, origin, 0)
        apart = Csv(
            schema=self.schema,
            dialect=replace(self.dialect, ending=_SEPARATOR),
            max_record_bytes=self.max_record_bytes,
            rules=self.syntax.rules,
            permissive=self.permissive,
        )
        return apart.index(packed.data, wanted, origin, 0)


def _code(one: bytes) -> int:
    return one[0] if one else -1


_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\\\": "\\", "\\0": "\0"}


def _spelled(value: str) -> bytes:
    """The bytes of an option's text, in which \\t, \\n, \\r, \\0 and \\\\ stand for characters that are hard to
    type."""
    out, at = "", 0
    while at < len(value):
        pair = value[at : at + 2]
        out += _ESCAPES.get(pair, value[at])
        at += 2 if pair in _ESCAPES else 1
    return out.encode()


def delimiter_option(value: str) -> bytes:
    """A delimiter of 1 to 16 bytes."""
    if not 1 <= len(_spelled(value)) <= 16:
        raise ValueError("1 to 16 bytes")
    return _spelled(value)


def _one_or_none(value: str) -> bytes:
    spelled = _spelled(value)
    if len(spelled) > 1 or spelled in (b"\n", b"\r") or (spelled and spelled[0] > 127):
        raise ValueError("one ASCII character, or empty for none")
    return spelled


def _tokens(value: str) -> tuple[bytes, ...]:
    return tuple(_spelled(token) for token in value.split("|"))


@dataclass(frozen=True, slots=True)
class CsvSettings(TextSettings):
    """The options of `format = 'csv'`."""

    delimiter: bytes = option(delimiter_option, default=b",", help="between fields; one or more bytes, \\t for a tab")
    record_delimiter: bytes = option(delimiter_option, default=b"", help="after records; LF or CRLF if absent")
    quote: bytes = option(_one_or_none, default=b'"', help="around fields that contain delimiters; empty for none")
    escape: bytes = option(_one_or_none, default=b"", help="inside quotes, makes the next character plain")
    comment: bytes = option(_one_or_none, default=b"", help="a line that begins with it is not a record")
    nulls_as: tuple[bytes, ...] = option(
        _tokens, default=(b"",), help="unquoted fields that are NULL, with | between: |NULL|\\N"
    )
    header: bool = option(boolean, default=False, help="the first line of each file names the columns")
    multiline: bool = option(
        boolean, default=False, help="quoted fields may contain newlines; one task reads each file"
    )
    ragged: Literal["bad", "null"] | None = option(
        choice("bad", "null"),
        help="bad: a record with too few or too many fields is bad; null: missing fields are NULL, extra fields are "
        "ignored (the default with mode PERMISSIVE)",
    )
    trailing_delimiter: bool = option(boolean, default=False, help="a delimiter after the last field is allowed")

    @property
    def dialect(self) -> Dialect:
        """How the file is written."""
        ragged = self.ragged or ("null" if self.permissive else "bad")
        return Dialect(
            delimiter=self.delimiter,
            ending=self.record_delimiter,
            quote=self.quote,
            escape=self.escape,
            comment=self.comment,
            nulls=self.nulls_as,
            header=self.header,
            multiline=self.multiline,
            ragged=ragged == "null",
            trailing=self.trailing_delimiter,
        )


def _build(schema: Schema, settings: CsvSettings) -> Csv:
    dialect = settings.dialect
    for field in schema:
        if not isinstance(field.type, Scalar | Decimal):
            raise BadOption(
                f"format 'csv' cannot store {field.type.ddl} (column {field.name})",
                advice="Use format = 'json', or declare the column as STRING.",
                option="format",
                value="csv",
            )
    if dialect.delimiter == (dialect.ending or b"\n") or dialect.delimiter in (dialect.quote, dialect.escape):
        raise BadOption(
            "the delimiter cannot be the quote, the escape character or the record delimiter",
            advice="Choose another delimiter.",
            option="delimiter",
            value=dialect.delimiter.decode("utf-8", "replace"),
        )
    return Csv(
        schema=schema,
        dialect=dialect,
        max_record_bytes=settings.max_record_bytes,
        rules=settings.rules,
        permissive=settings.permissive,
    )


CSV = FormatKind("csv", "delimited text, one record per line", CsvSettings, _build)
