"""Avro schemas: their Arrow types, and reading records with only some fields.

Logical types of numbers are taken off before fastavro sees a schema, because Arrow makes times of numbers faster than
Python does, and without the limits of Python's years.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import BadOption, MissingPackage

_PRIMITIVE: dict[str, pa.DataType] = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip
_TIMES: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}


def package() -> Any:
    """The module fastavro. Raises MissingPackage."""
    try:
        import fastavro
        import fastavro.schema
    except ImportError as problem:
        raise MissingPackage(
            f"format 'avro' needs a package that is not installed here: {problem}",
            advice="pip install 'headrace[avro]'",
            package="fastavro",
        ) from problem
    return fastavro


class AvroSchema:
    """A writer's schema, which is a record. Immutable. Raises BadOption if it is not the schema of a record."""

    def __init__(self, text: str, where: str) -> None:
        """`where` names the place of the text, for errors."""
        avro = package()
        try:
            self._json = _plain(json.loads(text))
            self._parsed = avro.parse_schema(self._json)
            record = isinstance(self._json, dict) and self._json.get("type") == "record"
        except Exception as problem:  # the library raises errors of many kinds about a bad schema
            raise _bad(f"{where} is no Avro schema: {problem}") from problem
        if not record:
            raise _bad(f"{where} is not the schema of a record")
        types = _Types(text)
        self._holders: dict[str, Any] = {f["name"]: f for f in self._json["fields"]}
        self.arrow = pa.schema([pa.field(f["name"], types.of(f["type"])) for f in json.loads(text)["fields"]])
        canonical = avro.schema.to_parsing_canonical_form(json.loads(text))
        self.fingerprint = bytes.fromhex(avro.schema.fingerprint(canonical, "CRC-64-AVRO"))
        self._readers: dict[tuple[str, ...], Any] = {}
        self._read = avro.schemaless_reader

    def record(self, source: io.BytesIO, names: tuple[str, ...]) -> dict[str, Any]:
        """The next record of `source`, with at least these fields. Raises any exception for bytes that are none."""
        if names not in self._readers:
            self._readers[names] = self._reader(names)
        found: dict[str, Any] = self._read(source, self._parsed, self._readers[names])
        return found

    def _reader(self, names: tuple[str, ...]) -> Any:
        """The schema of a reader of some fields; None for all. A field may use a type that a skipped one defines."""
        if len(names) == len(self._holders):
            return None
        some = dict(self._json, fields=[self._holders[name] for name in self._holders if name in names])
        try:
            return package().parse_schema(some)
        except Exception:
            return None

    def column(self, values: Sequence[Any], name: str) -> Any:
        """Values of a field as an array of the writer's type."""
        kind: Any = self.arrow.field(name).type
        return pa.array([_value(v, kind) for v in values] if kind.num_fields else list(values), kind)


def _value(value: Any, kind: Any) -> Any:
    """Maps as pyarrow takes them."""
    if value is None or not kind.num_fields:
        return value
    if pa.types.is_map(kind):
        return [(k, _value(v, kind.item_type)) for k, v in value.items()]
    if pa.types.is_list(kind):
        return [_value(v, kind.value_type) for v in value]
    return {f.name: _value(value.get(f.name), f.type) for f in (kind.field(i) for i in range(kind.num_fields))}


def _bad(message: str) -> BadOption:
    return BadOption(message, advice="Give the schema of a record, as JSON.", option="schema")


def _plain(schema: Any) -> Any:
    """A schema without logical types, except decimals, which fastavro makes."""
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {k: v for k, v in schema.items() if k != "logicalType" or v == "decimal"}
    for name in ("type", "items", "values"):
        if name in kept:
            kept[name] = _plain(kept[name])
    if "fields" in kept:
        kept["fields"] = [_plain(field) for field in kept["fields"]]
    return kept


class _Types:
    """The Arrow types of a schema. Named types may be used again after they were defined."""

    def __init__(self, text: str) -> None:
        self._known: dict[str, Any] = {}
        self._open: set[str] = set()
        self._learn(json.loads(text), "")

    def _learn(self, schema: Any, space: str) -> None:
        if isinstance(schema, list):
            for part in schema:
                self._learn(part, space)
        elif isinstance(schema, Mapping):
            space = schema.get("namespace", space)
            if "name" in schema and schema.get("type") in ("record", "enum", "fixed"):
                self._known[schema["name"]] = schema
                self._known[f"{space}.{schema['name']}"] = schema
            for name in ("type", "items", "values"):
                self._learn(schema.get(name), space)
            for field in schema.get("fields", ()):
                self._learn(field, space)

    def of(self, schema: Any) -> Any:
        """The Arrow type. A type without one, such as a union of a number and a text or a record that contains itself,
        is a duration, which no declared type takes."""
        if isinstance(schema, list):
            kinds = [part for part in schema if part != "null"]
            return self.of(kinds[0]) if len(kinds) == 1 else pa.null() if not kinds else pa.duration("s")
        if isinstance(schema, str):
            if schema in _PRIMITIVE:
                return _PRIMITIVE[schema]
            if schema not in self._known or schema in self._open:
                return pa.duration("s")
            return self._opened(schema)
        return self._complex(schema)

    def _opened(self, name: str) -> Any:
        self._open.add(name)
        try:
            return self.of(self._known[name])
        finally:
            self._open.discard(name)

    def _complex(self, schema: Mapping[str, Any]) -> Any:
        kind, logical = schema["type"], schema.get("logicalType")
        if logical == "decimal":
            return pa.decimal128(int(schema["precision"]), int(schema.get("scale", 0)))
        if logical in _TIMES and kind in ("int", "long"):
            return _TIMES[logical]
        if kind == "record":
            if schema["name"] not in self._open:
                self._open.add(schema["name"])
                try:
                    return pa.struct([pa.field(f["name"], self.of(f["type"])) for f in schema["fields"]])
                finally:
                    self._open.discard(schema["name"])
            return pa.duration("s")
        if kind == "array":
            return pa.list_(self.of(schema["items"]))
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"]))
        if kind == "enum":
            return pa.string()
        if kind == "fixed":
            return pa.binary()
        return self.of(kind)
