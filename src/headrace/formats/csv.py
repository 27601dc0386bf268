"""CSV: decoded by pyarrow; buffers that it refuses are decoded record by record.

A record is a line (LF or CRLF); empty lines are no records. A quote matters only at a field's beginning. An unquoted
empty field is NULL, a quoted one is an empty string.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc

from headrace.errors import BadOption, HeaderMismatch
from headrace.formats.base import COMMON_OPTIONS, BadRecord, Decoded, FormatKind, too_long
from headrace.formats.values import BadValue, Rules, text_cell
from headrace.options import Option, boolean
from headrace.schema import Scalar, Schema

_BOM = b"\xef\xbb\xbf"
_FAST = {"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DOUBLE", "STRING", "TIMESTAMP"}


def records(data: bytes, delimiter: bytes) -> Iterator[tuple[int, bytes]]:
    begin = 0
    while begin < len(data):
        end = data.find(delimiter, begin)
        end = len(data) if end < 0 else end
        yield begin, data[begin:end]
        begin = end + len(delimiter)


class BadStructure(ValueError):
    """A record that breaks the quoting rules; the argument is the reason word."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a CSV file is written."""

    delimiter: bytes = b","
    quote: bytes = b'"'
    header: bool = False


def split_record(raw: bytes, dialect: Dialect) -> list[tuple[bytes, bool]]:
    """The fields of one record, unquoted, each with whether it was quoted. Raises BadStructure."""
    fields: list[tuple[bytes, bool]] = []
    at, step = 0, len(dialect.delimiter)
    while True:
        if dialect.quote and raw.startswith(dialect.quote, at):
            value, at = _quoted(raw, at + 1, dialect.quote)
            fields.append((value, True))
            if at < len(raw) and not raw.startswith(dialect.delimiter, at):
                raise BadStructure("bad_quote")
        else:
            end = raw.find(dialect.delimiter, at)
            end = len(raw) if end < 0 else end
            fields.append((raw[at:end], False))
            at = end
        if at >= len(raw):
            return fields
        at += step


def _quoted(raw: bytes, at: int, quote: bytes) -> tuple[bytes, int]:
    parts: list[bytes] = []
    while True:
        end = raw.find(quote, at)
        if end < 0:
            raise BadStructure("open_quote")
        parts.append(raw[at:end])
        if not raw.startswith(quote, end + 1):
            return b"".join(parts), end + 1
        parts.append(quote)
        at = end + 2


class Csv:
    """The `csv` format. Holds no state between calls."""

    name = "csv"

    def __init__(self, schema: Schema, dialect: Dialect, max_record_bytes: int) -> None:
        self.schema = schema
        self.dialect = dialect
        self.max_record_bytes = max_record_bytes

    @property
    def delimiter(self) -> bytes:
        return b"\n"

    @property
    def splittable(self) -> bool:
        return True

    def header_bytes(self, head: bytes) -> int:
        begin = len(_BOM) if head.startswith(_BOM) else 0
        if not self.dialect.header:
            return begin
        for at, raw in records(head[begin:], b"\n"):
            line = raw.removesuffix(b"\r")
            if line:
                self._check_header(line)
                return min(len(head), begin + at + len(raw) + 1)
        return len(head)

    def _check_header(self, line: bytes) -> None:
        try:
            names = [v.decode("utf-8", "replace").strip() for v, _ in split_record(line, self.dialect)]
        except BadStructure:
            names = [line.decode("utf-8", "replace")]
        declared = list(self.schema.names)
        if [n.lower() for n in names] != [d.lower() for d in declared]:
            raise HeaderMismatch(
                f"the header names {', '.join(names[:20])}",
                advice=f"The stream declares {', '.join(declared[:20])}, in this order. Declare the columns as the "
                "file has them, or drop the header and set header = 'false'.",
                header=names,
                declared=declared,
            )

    def decode(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> Decoded:
        raw = bytes(data)
        fast = self._decode_fast(raw, wanted)
        return fast if fast is not None else self._decode_each(raw, wanted, origin, offset)

    def _decode_fast(self, data: bytes, wanted: Sequence[int]) -> Decoded | None:
        fields = [self.schema[i] for i in wanted]
        plain = self.dialect.quote not in data and b"\r" not in data and b"\n\n" not in data
        simple = all(isinstance(f.type, Scalar) and f.type.name in _FAST for f in fields)
        if not (wanted and plain and simple and data[:1] not in (b"", b"\n")) or len(self.schema) < 2:
            return None
        if len(data) > self.max_record_bytes and max(map(len, data.split(b"\n"))) > self.max_record_bytes:
            return None
        names = [str(i) for i in range(len(self.schema))]
        convert = pc.ConvertOptions(
            column_types={str(i): self.schema[i].type.arrow for i in wanted}, include_columns=[str(i) for i in wanted],
            null_values=[""], strings_can_be_null=True, true_values=["true"], false_values=["false"],
        )  # fmt: skip
        try:
            table = pc.read_csv(
                io.BytesIO(data),
                read_options=pc.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
                parse_options=pc.ParseOptions(delimiter=self.dialect.delimiter.decode()),
                convert_options=convert,
            )
        except pa.ArrowInvalid:
            return None
        columns = {i: pa.concat_arrays(table.column(str(i)).chunks) for i in wanted}
        return Decoded(table.num_rows, columns)

    def _decode_each(self, data: bytes, wanted: Sequence[int], origin: str, offset: int) -> Decoded:
        cells: dict[int, list[Any]] = {i: [] for i in wanted}
        bad: list[BadRecord] = []
        rows = 0
        for begin, line in records(data, b"\n"):
            raw = line.removesuffix(b"\r")
            if not raw:
                continue
            if len(raw) > self.max_record_bytes:
                bad.append(too_long(origin, offset + begin, raw, self.max_record_bytes))
                continue
            try:
                fields = split_record(raw, self.dialect)
                if len(fields) != len(self.schema):
                    raise BadStructure("field_count")
            except BadStructure as problem:
                bad.append(BadRecord(origin, offset + begin, problem.args[0], None, raw))
                continue
            for i in wanted:
                value, quoted = fields[i]
                try:
                    missing = not value and not quoted
                    cells[i].append(None if missing else text_cell(self.schema[i].type, value, Rules()))
                except BadValue as problem:
                    cells[i].append(None)
                    bad.append(BadRecord(origin, offset + begin, problem.reason, i, raw, rows))
            rows += 1
        return Decoded(rows, {i: pa.array(v, self.schema[i].type.arrow) for i, v in cells.items()}, tuple(bad))


def _one_byte(value: str) -> bytes:
    if len(value.encode()) != 1 or value in "\r\n":
        raise ValueError("one ASCII character")
    return value.encode()


def _build(schema: Schema, values: Mapping[str, object]) -> Csv:
    delimiter, quote, header = values["delimiter"], values["quote"], values["header"]
    size = values["max_record_bytes"]
    assert isinstance(delimiter, bytes) and isinstance(quote, bytes) and isinstance(size, int)
    for field in schema:
        if not isinstance(field.type, Scalar) and not field.type.ddl.startswith("DECIMAL"):
            raise BadOption(
                f"format 'csv' cannot hold {field.type.ddl} (column {field.name})",
                advice="Use format = 'json', or declare the column as STRING.", option="format", value="csv",
            )  # fmt: skip
    return Csv(schema, Dialect(delimiter, quote, bool(header)), size)


CSV = FormatKind(
    "csv",
    "delimited text, one record per line",
    (
        Option("delimiter", _one_byte, default=b",", help="between fields"),
        Option("quote", _one_byte, default=b'"', help="around fields that hold delimiters"),
        Option("header", boolean, default=False, help="the first line of each file names the columns"),
        *COMMON_OPTIONS,
    ),
    _build,
)
