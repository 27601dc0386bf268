"""JSON fields to STRUCT, ARRAY and MAP columns. Each level is scanned as one column, then its parts are parsed.

A bad part makes its cell bad. Missing and null members are NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.formats import columns
from headrace.formats.columns import ByteArray, Fields, Parsed, Places, merge, parse_column, status_of
from headrace.formats.kernels.numbers import FINE, NULL
from headrace.formats.kernels.scan_json import scan_items, scan_objects
from headrace.model.schema import Array, DataType, Map, Struct

_OBJECT, _LIST = 123, 91
_NONE: Places = np.empty(0, np.int32)


class KeyTable:
    """The wanted keys in the form that the scanner takes: their bytes, their bounds, and an open hash table of
    slots."""

    def __init__(self, names: tuple[str, ...]) -> None:
        encoded = [name.encode() for name in names]
        self.keys: ByteArray = np.frombuffer(b"".join(encoded) + b"\0", np.uint8)
        self.bounds: Places = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
        size = 8
        while size < 3 * len(encoded):
            size *= 2
        self.table: Places = np.full(size, -1, np.int32)
        for slot, key in enumerate(encoded):
            at = _hash(key) & (size - 1)
            while self.table[at] >= 0:
                at = (at + 1) & (size - 1)
            self.table[at] = slot


def _hash(key: bytes) -> int:
    """The scanner's hash of a key: FNV-1a, upper 31 bits."""
    h = 0xCBF29CE484222325
    for byte in key:
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h >> 33


@lru_cache(maxsize=256)
def key_table(names: tuple[str, ...]) -> KeyTable:
    """The cached table of these keys."""
    return KeyTable(names)


def parse_nested(fields: Fields, kind: DataType) -> Parsed:
    """Parse a STRUCT, ARRAY or MAP column."""
    status = np.where(fields.starts < 0, NULL, FINE).astype(np.uint8)
    if isinstance(kind, Struct):
        return _struct(fields, kind, status)
    if isinstance(kind, Array):
        return _array(fields, kind, status)
    assert isinstance(kind, Map)
    return _map(fields, kind, status)


def _struct(fields: Fields, kind: Struct, status: ByteArray) -> Parsed:
    rows = len(fields)
    table = key_table(tuple(f.name for f in kind.fields))
    starts = np.empty((len(kind.fields), rows), np.int32)
    ends = np.empty_like(starts)
    scan_objects(
        fields.data, fields.starts, table.keys, table.bounds, table.table, starts, ends, status, status_of("bad_nested")
    )
    parts = []
    for i, field in enumerate(kind.fields):
        part = parse_column(Fields(fields.data, starts[i], ends[i], fields.syntax), field.type)
        status = merge(status, part.status) if part.odd else status
        parts.append(part.array)
    odd = int(np.count_nonzero(status != FINE))
    array = pa.Array.from_buffers(kind.arrow, rows, [_validity(status, odd)], odd, children=parts)
    return Parsed(array, status, odd)


def parse_paths(fields: Fields, kind: Struct, paths: Sequence[tuple[str, ...]]) -> list[Parsed]:
    """Parse only some fields of a STRUCT column, each as a column of its own. A path has the names on the way to the
    field. A field is bad if it is itself bad, or if one on the way to it is no object. Other fields do not matter."""
    status = np.where(fields.starts < 0, NULL, FINE).astype(np.uint8)
    types = {f.name: f.type for f in kind.fields}
    names = tuple(dict.fromkeys(path[0] for path in paths))
    table = key_table(names)
    starts = np.empty((len(names), len(fields)), np.int32)
    ends = np.empty_like(starts)
    scan_objects(
        fields.data, fields.starts, table.keys, table.bounds, table.table, starts, ends, status, status_of("bad_nested")
    )
    starts[:, status != FINE] = -1
    found: dict[tuple[str, ...], Parsed] = {}
    for i, name in enumerate(names):
        inner = Fields(fields.data, starts[i], ends[i], fields.syntax)
        if (name,) in paths:
            found[(name,)] = parse_column(inner, types[name])
        deeper = [path[1:] for path in paths if path[0] == name and len(path) > 1]
        if deeper:
            struct = types[name]
            assert isinstance(struct, Struct)
            for path, part in zip(deeper, parse_paths(inner, struct, deeper), strict=True):
                found[(name, *path)] = part
    return [_below(status, found[path]) for path in paths]


def _below(status: ByteArray, part: Parsed) -> Parsed:
    """A field of objects, some of which are bad."""
    bad = status > NULL
    if not bad.any():
        return part
    merged = np.where(bad, status, part.status).astype(np.uint8)
    return Parsed(part.array, merged, int(np.count_nonzero(merged != FINE)))


def _array(fields: Fields, kind: Array, status: ByteArray) -> Parsed:
    counts, starts, ends, _, _ = _items(fields, _LIST, status)
    part = parse_column(Fields(fields.data, starts, ends, fields.syntax), kind.element)
    return _listed(kind=kind, status=status, counts=counts, children=[part.array], parts=[part])


def _map(fields: Fields, kind: Map, status: ByteArray) -> Parsed:
    counts, starts, ends, key_starts, key_ends = _items(fields, _OBJECT, status)
    values = parse_column(Fields(fields.data, starts, ends, fields.syntax), kind.value)
    if kind.key.ddl == "STRING":
        keys = parse_column(Fields(fields.data, key_starts, key_ends, fields.syntax), kind.key)
    else:
        texts = columns.plain_texts(Fields(fields.data, key_starts, key_ends, fields.syntax))
        keys = parse_column(texts, kind.key)
    rows = np.repeat(np.arange(len(counts)), counts)
    keep = _last_of_each(rows, keys.array)
    if keys.odd:
        _mark(status, rows, keys.status)
    if values.odd:  # of equal keys only the last counts, so a bad value of an earlier one does not matter
        counted = slice(None) if keep is None else keep
        _mark(status, rows[counted], values.status[counted])
    if keep is None and keys.odd == 0:
        return _listed(kind=kind, status=status, counts=counts, children=[keys.array, values.array], parts=[])
    keep = np.arange(len(rows)) if keep is None else keep
    keep = keep[status[rows[keep]] == FINE]  # a bad key is NULL, which a map key must not be
    counts = np.bincount(rows[keep], minlength=len(counts)).astype(np.int32)
    return _listed(
        kind=kind,
        status=status,
        counts=counts,
        children=[keys.array.take(pa.array(keep)), values.array.take(pa.array(keep))],
        parts=[],
    )


def _last_of_each(rows: npt.NDArray[np.int64], keys: Any) -> npt.NDArray[np.int64] | None:
    """The indexes of the last of equal keys in each row; None if no row has equal keys."""
    if len(rows) < 2:
        return None
    codes = keys.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    both = rows * (codes.max() + 2) + codes + 1
    _, first = np.unique(both[::-1], return_index=True)
    return None if len(first) == len(both) else np.sort(len(both) - 1 - first)


def _items(fields: Fields, opening: int, status: ByteArray) -> tuple[Places, Places, Places, Places, Places]:
    """(items per row, their starts and ends, their keys' starts and ends)."""
    wrong = status_of("bad_nested")
    counts = np.empty(len(fields), np.int32)
    total = scan_items(fields.data, fields.starts, opening, counts, _NONE, _NONE, _NONE, _NONE, status, wrong)
    if total == 0:
        return counts, _NONE, _NONE, _NONE, _NONE
    found = [np.empty(total, np.int32) for _ in range(4)]
    scan_items(fields.data, fields.starts, opening, counts, found[0], found[1], found[2], found[3], status, wrong)
    return counts, found[0], found[1], found[2], found[3]


def _mark(status: ByteArray, rows: npt.NDArray[np.int64], inner: ByteArray) -> None:
    """Mark cells that have a bad item, with the reason of the first one."""
    bad = np.flatnonzero(inner > NULL)[::-1]
    fine = status[rows[bad]] == FINE
    status[rows[bad][fine]] = inner[bad][fine]


def _listed(kind: DataType, status: ByteArray, counts: Places, children: list[Any], parts: list[Parsed]) -> Parsed:
    for part in parts:
        if part.odd:
            _mark(status, np.repeat(np.arange(len(counts)), counts), part.status)
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    odd = int(np.count_nonzero(status != FINE))
    inner = children[0]
    if len(children) == 2:
        whole: Any = kind.arrow
        entries = pa.struct([pa.field("key", whole.key_type, nullable=False), whole.item_field])
        inner = pa.Array.from_buffers(entries, len(children[0]), [None], 0, children=children)
    buffers = [_validity(status, odd), pa.py_buffer(offsets.tobytes())]
    return Parsed(pa.Array.from_buffers(kind.arrow, len(counts), buffers, odd, children=[inner]), status, odd)


def _validity(status: ByteArray, odd: int) -> Any:
    return pa.py_buffer(np.packbits(status == FINE, bitorder="little").tobytes()) if odd else None
