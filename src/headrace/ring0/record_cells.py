"""How many values decoding makes of a record: one for each decoded column, and more for nested columns.

An item of an ARRAY of records has all fields of the record, even if its text is only `{}`. With 100 fields, decoding
took 200 times the bytes of such a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.formats.format_kind import Format
from headrace.formats.index import view_of
from headrace.formats.json import JsonLines
from headrace.formats.kernels import scan_json
from headrace.model.schema import Array, DataType, Map, Struct


class RecordCells(NamedTuple):
    """`columns` are the values of a record outside of arrays and maps, `per_item` those of one item of an array or map
    at most. `maps` is true if there are maps."""

    columns: int
    per_item: int = 0
    maps: bool = False

    @staticmethod
    def of(types: Iterable[DataType]) -> RecordCells:
        """The cells of a record with columns of these types."""
        known = list(types)
        lists = [part for kind in known for part in _lists(kind)]
        per_item = max(
            (_width(part.element) if isinstance(part, Array) else 1 + _width(part.value) for part in lists), default=0
        )
        return RecordCells(sum(map(_width, known)), per_item, any(isinstance(part, Map) for part in lists))

    def in_items(self, fmt: Format, data: bytes | memoryview, enough: int) -> int:
        """An upper bound of the values in all items of arrays and maps in `data`. If it is below `enough` it may be far
        too high."""
        if not self.per_item or not isinstance(fmt, JsonLines):  # no other format of text has such columns
            return 0
        text = bytes(data)
        most = (text.count(b",") + text.count(b"[") + text.count(b"{")) * self.per_item
        if most <= enough:
            return most
        return int(scan_json.count_items(view_of(data), self.maps)) * self.per_item


def _width(kind: DataType) -> int:
    return sum(_width(field.type) for field in kind.fields) if isinstance(kind, Struct) else 1


def _lists(kind: DataType) -> Iterator[Array | Map]:
    if isinstance(kind, Struct):
        for field in kind.fields:
            yield from _lists(field.type)
    elif isinstance(kind, Array):
        yield kind
        yield from _lists(kind.element)
    elif isinstance(kind, Map):
        yield kind
        yield from _lists(kind.value)
