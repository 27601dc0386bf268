"""JSON lines: one object per record, decoded by pyarrow; records that it refuses are decoded one by one.

Keys may come in any order, are matched exactly, and may be missing (NULL); of duplicate keys the last wins. Lines of
nothing but white space are no records.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

from headrace.formats.base import COMMON_OPTIONS, BadRecord, Decoded, FormatKind, too_long
from headrace.formats.values import BadValue, Number, json_value
from headrace.schema import Scalar, Schema

_BOM = b"\xef\xbb\xbf"
# pyarrow and the one-by-one path agree on these; other types always take the latter.
_FAST = {"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DOUBLE", "STRING", "TIMESTAMP"}
scanstring: Any = json.decoder.scanstring  # type: ignore[attr-defined]
_SPACE = re.compile(r"[ \t\r\n]*")
MAX_DEPTH = 256


class BadStructure(ValueError):
    """A record that is no JSON object; the argument is the reason word."""


def _reject_constant(name: str) -> Any:
    raise BadStructure("bad_json")


_DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_reject_constant)


def records(data: bytes, delimiter: bytes) -> Iterator[tuple[int, bytes]]:
    """The records of `data` with their offsets, without delimiters."""
    begin = 0
    while begin < len(data):
        end = data.find(delimiter, begin)
        end = len(data) if end < 0 else end
        yield begin, data[begin:end]
        begin = end + len(delimiter)


def parse_object(text: str) -> dict[str, tuple[Any, str]]:
    """The members of the object that `text` spells: key to (value, its text). Raises BadStructure."""
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        try:
            _DECODER.decode(text)
        except (ValueError, RecursionError):
            raise BadStructure("bad_json") from None
        raise BadStructure("not_an_object")
    found: dict[str, tuple[Any, str]] = {}
    try:
        at = _skip(text, at + 1)
        while text[at : at + 1] != "}":
            if text[at : at + 1] != '"':
                raise BadStructure("bad_json")
            key, at = scanstring(text, at + 1)
            at = _skip(text, at)
            if text[at : at + 1] != ":":
                raise BadStructure("bad_json")
            at = _skip(text, at + 1)
            value, end = _DECODER.raw_decode(text, at)
            found[key] = (value, text[at:end])
            at = _skip(text, end)
            if text[at : at + 1] == ",":
                at = _skip(text, at + 1)
                if text[at : at + 1] == "}":
                    raise BadStructure("bad_json")
            elif text[at : at + 1] != "}":
                raise BadStructure("bad_json")
    except BadStructure:
        raise
    except RecursionError:
        raise BadStructure("too_deep") from None
    except (ValueError, StopIteration):
        raise BadStructure("bad_json") from None
    if _skip(text, at + 1) != len(text):
        raise BadStructure("bad_json")
    return found


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


class JsonLines:
    """The `json` format. Holds no state between calls."""

    name = "json"

    def __init__(self, schema: Schema, max_record_bytes: int) -> None:
        self.schema = schema
        self.max_record_bytes = max_record_bytes

    @property
    def delimiter(self) -> bytes:
        return b"\n"

    @property
    def splittable(self) -> bool:
        return True

    def header_bytes(self, head: bytes) -> int:
        return len(_BOM) if head.startswith(_BOM) else 0

    def decode(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> Decoded:
        fast = self._decode_fast(data, wanted)
        return fast if fast is not None else self._decode_each(bytes(data), wanted, origin, offset)

    def _decode_fast(self, data: bytes | memoryview, wanted: Sequence[int]) -> Decoded | None:
        fields = [self.schema[i] for i in wanted]
        if not wanted or not all(isinstance(f.type, Scalar) and f.type.name in _FAST for f in fields):
            return None
        raw = bytes(data)
        lines = raw.count(b"\n") + (not raw.endswith(b"\n"))
        if len(raw) > self.max_record_bytes and max(map(len, raw.split(b"\n"))) > self.max_record_bytes:
            return None
        parse = pj.ParseOptions(
            explicit_schema=pa.schema([pa.field(f.name, f.type.arrow) for f in fields]),
            unexpected_field_behavior="ignore",
        )
        try:
            table = pj.read_json(
                io.BytesIO(raw), read_options=pj.ReadOptions(use_threads=False, block_size=len(raw) + 1),
                parse_options=parse,
            )  # fmt: skip
        except pa.ArrowInvalid:
            return None
        if table.num_rows != lines:
            return None
        columns = {i: _whole(table.column(f.name)) for i, f in zip(wanted, fields, strict=True)}
        return Decoded(table.num_rows, columns)

    def _decode_each(self, data: bytes, wanted: Sequence[int], origin: str, offset: int) -> Decoded:
        cells: dict[int, list[Any]] = {i: [] for i in wanted}
        bad: list[BadRecord] = []
        rows = 0
        for begin, raw in records(data, b"\n"):
            if len(raw) > self.max_record_bytes:
                bad.append(too_long(origin, offset + begin, raw, self.max_record_bytes))
                continue
            if not raw.strip(b" \t\r"):
                continue
            try:
                members = parse_object(raw.decode("utf-8", "surrogateescape"))
            except BadStructure as problem:
                bad.append(BadRecord(origin, offset + begin, problem.args[0], None, raw))
                continue
            for i in wanted:
                field = self.schema[i]
                value, text = members.get(field.name, (None, ""))
                try:
                    cells[i].append(json_value(field.type, value, text))
                except BadValue as problem:
                    cells[i].append(None)
                    bad.append(BadRecord(origin, offset + begin, problem.reason, i, raw, rows))
            rows += 1
        return Decoded(rows, {i: pa.array(v, self.schema[i].type.arrow) for i, v in cells.items()}, tuple(bad))


def _whole(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    return pa.concat_arrays(column.chunks)


def _build(schema: Schema, values: Mapping[str, object]) -> JsonLines:
    size = values["max_record_bytes"]
    assert isinstance(size, int)
    return JsonLines(schema, size)


JSON = FormatKind("json", "JSON lines, one object per line", COMMON_OPTIONS, _build)
NDJSON = FormatKind("ndjson", "JSON lines, one object per line", COMMON_OPTIONS, _build)
