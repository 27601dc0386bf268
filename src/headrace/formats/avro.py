"""The format `avro`: object container files, and messages with a schema that the stream knows.

A file carries its own schema, and is read by its blocks (`headrace.formats.tables`). A message is one record. It may
follow the id of its schema in a schema registry, or the fingerprint of its schema (single-object encoding). Only the
needed fields are decoded: fastavro skips the others, which still checks their structure.

Unit of parallelism: a run of blocks of a file.
"""

from __future__ import annotations

import bz2
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from headrace.base.options import choice, integer, option, text
from headrace.errors import BadOption
from headrace.formats.avro_messages import AvroMessages
from headrace.formats.avro_schema import AvroSchema, package
from headrace.formats.conform import named, require_fit
from headrace.formats.format_kind import Format, FormatKind
from headrace.formats.format_settings import RecordSettings
from headrace.formats.tables import FieldPath, FileColumn, TableFile, TableUnit, damaged, part_of, reading
from headrace.model.schema import Schema

RUN = 4 << 20  # bytes of blocks that are decoded together: a block alone is often small


class AvroFiles(TableFile):
    """The `avro` format of container files."""

    name = "avro"
    indexer = "fastavro"
    unit = "run of blocks"

    def __init__(self, schema: Schema) -> None:
        package()
        self.schema = schema

    def units(self, file: Any, path: str, size: int, begin: int, end: int) -> Iterator[TableUnit]:
        schema, codec, sync, at = _header(file, path)
        require_fit(self.schema, schema.arrow, path)
        blocks = _Blocks(file, path, schema, codec)
        run: list[_AvroBlock] = []
        first = total = 0
        while at < size and at < end:
            block = _block(file, path, at, sync)
            if begin <= block.last < end and block.count:
                run.append(block)
                if run[-1].last - run[0].at >= RUN:
                    yield BlockRun(blocks, run, first)
                    first, run = total + block.count, []
            elif not run:
                first = total + block.count
            total += block.count
            at = block.last + 1
        if run:
            yield BlockRun(blocks, run, first)


@dataclass(frozen=True, slots=True)
class _AvroBlock:
    """A block: `count` records in bytes [at, at + size) of a file. `last` is the last byte of its sync marker."""

    count: int
    at: int
    size: int
    last: int


def _header(file: Any, path: str) -> tuple[AvroSchema, str, bytes, int]:
    """The schema, the codec, the sync marker and the first byte after the header."""
    avro = package()
    try:
        file.seek(0)
        opened = avro.reader(file)
        meta = opened.metadata
        sync: bytes = opened._header["sync"]
        file.seek(0)
        at = _after_header(file)
        return AvroSchema(meta["avro.schema"], path), meta.get("avro.codec", "null"), sync, at
    except BadOption as problem:
        raise damaged(path, problem.message) from problem
    except OSError:
        raise
    except Exception as problem:  # the library raises errors of many kinds about bytes that are no header
        raise damaged(path, f"it is no Avro file: {problem}") from problem


def _after_header(file: Any) -> int:
    """Walk over the magic bytes, the map of metadata and the sync marker."""
    at = 4
    while True:
        count, at = _long(file, at)
        if count == 0:
            return at + 16
        if count < 0:
            _, at = _long(file, at)
        for _ in range(2 * abs(count)):
            length, at = _long(file, at)
            at += length


def _long(file: Any, at: int) -> tuple[int, int]:
    """A number at a byte of the file, and the byte after it."""
    file.seek(at)
    value = shift = 0
    for byte in file.read(10):
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise EOFError("the file ends inside a number")


def _block(file: Any, path: str, at: int, sync: bytes) -> _AvroBlock:
    with reading(path):
        count, inner = _long(file, at)
        size, inner = _long(file, inner)
        file.seek(inner + max(0, size))
        if count < 0 or size < 0 or file.read(16) != sync:
            raise damaged(path, f"the block at byte {at} does not end with the sync marker")
    return _AvroBlock(count, inner, size, inner + size + 15)


class _Blocks:
    """Decodes blocks of an open file."""

    def __init__(self, file: Any, path: str, schema: AvroSchema, codec: str) -> None:
        self.file, self.path, self.schema = file, path, schema
        if codec not in _CODECS:
            raise damaged(path, f"its codec {codec} is not known; it may be {', '.join(_CODECS)}")
        self._decompress = _CODECS[codec]

    def records(self, block: _AvroBlock, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        self.file.seek(block.at)
        try:
            source = io.BytesIO(self._decompress(self.file.read(block.size)))
            for _ in range(block.count):
                yield self.schema.record(source, names)
        except OSError:
            raise
        except Exception as problem:  # the library raises errors of many kinds about bytes that are no record
            raise damaged(self.path, f"the block at byte {block.at}: {problem!r}") from problem


class BlockRun:
    """Some blocks of a file; see `headrace.formats.tables.TableUnit`."""

    def __init__(self, blocks: _Blocks, run: list[_AvroBlock], first: int) -> None:
        self._blocks, self._run, self.first = blocks, run, first
        self.rows, self.size = sum(b.count for b in run), run[-1].last + 1 - run[0].at
        self._kept: dict[str, Any] = {}

    def read(self, paths: Sequence[FieldPath]) -> list[FileColumn]:
        schema, path = self._blocks.schema, self._blocks.path
        holders = {p[0]: named(p[0], schema.arrow.names, path) for p in paths}
        fresh = tuple(sorted({h for h in holders.values() if h is not None and h not in self._kept}))
        if fresh:
            values: dict[str, list[Any]] = {name: [] for name in fresh}
            for block in self._run:
                for record in self._blocks.records(block, fresh):
                    for name in fresh:
                        values[name].append(record[name])
            self._kept |= {name: schema.column(values[name], name) for name in fresh}
        return [part_of(self._kept, holders[p[0]], p[1:], path) for p in paths]


def _snappy(data: bytes) -> bytes:
    """A block ends with a checksum of its content, which follows Avro's own rule for this codec."""
    size = shift = 0
    for byte in data:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    content = pa.Codec("snappy").decompress(data[:-4], size, asbytes=True)
    if zlib.crc32(content) != int.from_bytes(data[-4:], "big"):
        raise ValueError("the checksum does not match")
    return bytes(content)


def _zstandard(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return bytes(stream.read())


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": lambda data: zlib.decompress(data, -15),
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
}


@dataclass(frozen=True, slots=True)
class AvroSettings(RecordSettings):
    """The options of `format = 'avro'`. Those of messages are refused for files, which carry their own schema."""

    schema: str | None = option(text, help="the schema of messages, as JSON")
    schema_file: str | None = option(
        text,
        help="the file with the schema of messages; with framing = 'registry', {id} in the path is the schema's id",
    )
    framing: Literal["none", "registry", "single_object"] = option(
        choice("none", "registry", "single_object"),
        default="none",
        help="what is before the record of a message: nothing, the byte 0 and the schema's id in a registry, or the "
        "schema's fingerprint",
    )
    schema_id: int | None = option(
        integer(0, (1 << 32) - 1), help="with framing = 'registry' and one schema: the schema's id"
    )


def _build(schema: Schema, settings: AvroSettings) -> Format:
    given = settings.schema, settings.schema_file
    if given == (None, None):
        for name, wrong in (("framing", settings.framing != "none"), ("schema_id", settings.schema_id is not None)):
            if wrong:
                raise BadOption(
                    f"{name} is for messages, whose schema must be known",
                    advice="Give schema or schema_file, too.",
                    option=name,
                )
        return AvroFiles(schema)
    if None not in given:
        raise BadOption("schema and schema_file both give the schema", advice="Give one of them.", option="schema")
    many = settings.schema_file is not None and "{id}" in settings.schema_file
    registry = settings.framing == "registry"
    if registry and not many and settings.schema_id is None:
        raise BadOption(
            "framing = 'registry' needs the id of the schema",
            advice="Give schema_id, or a schema_file with {id} in its path.",
            option="schema_id",
        )
    if settings.schema_id is not None and (many or not registry):
        raise BadOption(
            "schema_id has no effect here",
            advice="Remove it. It belongs to framing = 'registry' with one schema.",
            option="schema_id",
        )
    if many and not registry:
        raise BadOption("{id} needs framing = 'registry'", advice="Name one file.", option="schema_file")
    return AvroMessages(
        schema=schema,
        max_record_bytes=settings.max_record_bytes,
        framing=settings.framing,
        only=_only(settings) if not many else None,
        schema_id=settings.schema_id,
        pattern=settings.schema_file if many else None,
    )


def _only(settings: AvroSettings) -> AvroSchema:
    if settings.schema is not None:
        return AvroSchema(settings.schema, "schema")
    assert settings.schema_file is not None
    try:
        with open(os.path.expanduser(settings.schema_file), encoding="utf-8") as file:
            return AvroSchema(file.read(), settings.schema_file)
    except (OSError, UnicodeDecodeError) as problem:
        raise BadOption(
            f"{settings.schema_file} cannot be read: {problem}",
            advice="Name a file that all machines can read.",
            option="schema_file",
            value=settings.schema_file,
        ) from problem


AVRO = FormatKind("avro", "Avro container files, and Avro messages", AvroSettings, _build)
