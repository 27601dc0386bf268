"""Avro messages: one record each, alone or after the id or fingerprint of its schema. See `headrace.formats.avro`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import BadOption, SchemaMismatch
from headrace.formats.avro_schema import AvroSchema
from headrace.formats.bad import BadRecords
from headrace.formats.columns import Parsed
from headrace.formats.conform import conformed, named, require_fit
from headrace.formats.format_kind import Decoded, Located
from headrace.formats.index import bad_cells, bad_structure, view_of
from headrace.formats.packing import OffsetsOf, Packed, pack_joined
from headrace.formats.tables import TableFile, part_of
from headrace.model.bad_reasons import STRUCTURE_REASONS
from headrace.model.schema import Schema, nested_fields

_WRONG = {0: "bad_avro", 1: "unknown_schema", 2: "record_too_long"}
_VERDICTS = {reason: verdict for verdict, reason in _WRONG.items()}
assert set(_VERDICTS) <= set(STRUCTURE_REASONS)
_SINGLE = b"\xc3\x01"


class AvroMessages(TableFile):
    """The `avro` format of messages. Schemas are read once by each worker."""

    name = "avro"
    indexer = "fastavro"
    in_order = "a record of Avro has no end of its own"

    def __init__(
        self,
        schema: Schema,
        max_record_bytes: int,
        framing: str,
        only: AvroSchema | None,
        schema_id: int | None,
        pattern: str | None,
    ) -> None:
        """`only` is the one schema; without it, `pattern` is the path of the schemas of a registry."""
        self.schema, self.max_record_bytes = schema, max_record_bytes
        self._framing, self._only, self._id, self._pattern = framing, only, schema_id, pattern
        self._known: dict[int, AvroSchema | None] = {}
        if only is not None:
            try:
                require_fit(schema, only.arrow, "the schema")
            except SchemaMismatch as problem:
                raise BadOption(
                    problem.message, advice="Declare the columns as the schema has them.", option="schema"
                ) from problem

    def pack(self, values: Sequence[bytes], number: OffsetsOf) -> Packed:
        """A byte between the messages gives an empty one a place of its own."""
        return pack_joined(values, b"\n", number)

    def index_packed(self, packed: Packed, wanted: Sequence[int], origin: str) -> AvroIndex:
        names = tuple(sorted(self.schema[c].name for c in wanted))
        rows: list[int] = []
        records: list[tuple[AvroSchema, dict[str, Any]]] = []
        wrong: list[tuple[int, int, int]] = []
        for k, (begin, stop) in enumerate(zip(packed.begins.tolist(), packed.stops.tolist(), strict=True)):
            found = self._record(packed.data[begin:stop], names)
            if isinstance(found, str):
                wrong.append((begin, stop, _VERDICTS[found]))
            else:
                rows.append(k)
                records.append(found)
        data = view_of(packed.data)
        bad = bad_structure(
            data=data,
            origin=origin,
            offset=0,
            wrong=np.array(wrong, np.int32).reshape(-1, 3),
            reasons=_WRONG,
            longest=self.max_record_bytes,
        )
        return AvroIndex(
            fmt=self,
            data=data,
            begins=packed.begins[rows],
            stops=packed.stops[rows],
            records=records,
            names=names,
            bad=bad,
            origin=origin,
        )

    def _record(self, message: bytes, names: tuple[str, ...]) -> tuple[AvroSchema, dict[str, Any]] | str:
        """A message's schema and its needed fields, or the reason why it is bad."""
        if len(message) > self.max_record_bytes:
            return "record_too_long"
        schema, at = self._schema_of(message)
        if schema is None:
            return "bad_avro" if at < 0 else "unknown_schema"
        source = io.BytesIO(message)
        source.seek(at)
        try:
            found = schema.record(source, _present(schema, names))
        except Exception:  # the library raises errors of many kinds about bytes that are no record
            return "bad_avro"
        return (schema, found) if source.tell() == len(message) else "bad_avro"

    def _schema_of(self, message: bytes) -> tuple[AvroSchema | None, int]:
        """The schema of a message and where its record begins. None with -1 if the framing is wrong."""
        if self._framing == "none":
            return self._only, 0
        if self._framing == "single_object":
            if len(message) < 10 or message[:2] != _SINGLE:
                return None, -1
            same = self._only is not None and message[2:10] == self._only.fingerprint
            return (self._only if same else None), 10
        if len(message) < 5 or message[0] != 0:
            return None, -1
        number = int.from_bytes(message[1:5], "big")
        if self._only is not None:
            return (self._only if number == self._id else None), 5
        return self._of_registry(number), 5

    def _of_registry(self, number: int) -> AvroSchema | None:
        """The schema with an id, if there is a file of it that fits the stream. A file that comes later is found."""
        if self._known.get(number) is None:
            assert self._pattern is not None
            path = self._pattern.replace("{id}", str(number))
            try:
                with open(path, encoding="utf-8") as file:
                    found = AvroSchema(file.read(), path)
                require_fit(self.schema, found.arrow, path)
                self._known[number] = found
            except (OSError, UnicodeDecodeError, BadOption, SchemaMismatch):
                return None
        return self._known[number]


def _present(schema: AvroSchema, names: tuple[str, ...]) -> tuple[str, ...]:
    found = (named(name, schema.arrow.names, "the schema") for name in names)
    return tuple(name for name in found if name is not None)


class AvroIndex:
    """Messages that were read with some of their fields; see `headrace.formats.format_kind.Indexed`."""

    def __init__(
        self,
        fmt: AvroMessages,
        data: npt.NDArray[np.uint8],
        begins: npt.NDArray[Any],
        stops: npt.NDArray[Any],
        records: list[tuple[AvroSchema, dict[str, Any]]],
        names: tuple[str, ...],
        bad: BadRecords,
        origin: str,
    ) -> None:
        self._format, self._data, self._begins, self._stops = fmt, data, begins, stops
        self._records, self._names, self._origin = records, names, origin
        self.rows, self.bad = len(records), bad

    @property
    def records(self) -> Located:
        return Located(self._data, self._begins, self._stops)

    def parse(self, columns: Sequence[int], selection: npt.NDArray[np.int64] | None = None) -> Decoded:
        schema = self._format.schema
        rows = self._rows([schema[c].name for c in columns], selection)
        parts = [self._column(rows, schema[c].name, (), schema[c].type) for c in columns]
        bad = bad_cells(
            found=[(c, p.status) for c, p in zip(columns, parts, strict=True) if p.odd],
            data=self._data,
            begins=self._begins,
            stops=self._stops,
            origin=self._origin,
            offset=0,
            selection=selection,
        )
        return Decoded(len(rows), {c: p.array for c, p in zip(columns, parts, strict=True)}, bad)

    def parse_fields(
        self, column: int, paths: Sequence[tuple[str, ...]], selection: npt.NDArray[np.int64] | None = None
    ) -> list[Parsed]:
        """Some fields of a STRUCT column, of all rows or of those in `selection`."""
        schema = self._format.schema
        types = {f.path: f.type for f in nested_fields(schema) if f.column == column}
        rows = self._rows([schema[column].name], selection)
        return [self._column(rows, schema[column].name, path, types[path]) for path in paths]

    def _rows(
        self, names: Sequence[str], selection: npt.NDArray[np.int64] | None
    ) -> list[tuple[AvroSchema, dict[str, Any]]]:
        """The records with these fields, read again if the index was made without them."""
        chosen = range(self.rows) if selection is None else selection.tolist()
        if set(names) <= set(self._names):
            return [self._records[k] for k in chosen]
        found = []
        for k in chosen:
            record = self._format._record(self._data[self._begins[k] : self._stops[k]].tobytes(), tuple(sorted(names)))
            assert not isinstance(record, str), "it was a record before"
            found.append(record)
        return found

    def _column(self, rows: Any, name: str, below: tuple[str, ...], kind: Any) -> Parsed:
        """A column of rows that may have several schemas, in their order."""
        parts, status, at = [], np.zeros(0, np.uint8), 0
        while at < len(rows):
            schema, end = rows[at][0], at + 1
            while end < len(rows) and rows[end][0] is schema:
                end += 1
            own = named(name, schema.arrow.names, "the schema")
            column = None
            if own is not None:
                values = schema.column([record[own] for _, record in rows[at:end]], own)
                column = part_of({own: values}, own, below, "the schema")
            made = conformed(column, kind, end - at, "the schema")
            parts.append(made.array)
            status = np.concatenate([status, made.status if made.odd else np.zeros(end - at, np.uint8)])
            at = end
        if not parts:
            return conformed(None, kind, 0, "the schema")
        array: Any = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return Parsed(array, status, int(np.count_nonzero(status)))
