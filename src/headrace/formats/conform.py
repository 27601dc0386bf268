"""Converts columns of files that have types of their own (Parquet, Arrow, Avro) to the declared types.

Only conversions that keep every value are made: to a wider number, to a decimal with more digits, from any unit of time
to microseconds (cut, as in text). Any other type is a mismatch of the whole file. So the only bad values are text that
is not UTF-8 and times outside the years 1 to 9999.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SchemaMismatch
from headrace.formats.columns import Parsed, count_cells, status_of
from headrace.formats.kernels.numbers import FINE
from headrace.model.schema import Array, DataType, Decimal, Field, Map, Scalar, Struct

_DAY = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
_FIRST, _LAST = _FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1
_PER_MICRO = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1_000}
# How many decimal digits the integers of a width have.
_DIGITS = {1: 3, 2: 5, 4: 10, 8: 20}
_INTEGERS = {"TINYINT": 1, "SMALLINT": 2, "INT": 4, "BIGINT": 8}
_NO_STATUS = np.empty(0, np.uint8)
_arrow: Any = pa  # the type is known only when a column is there, which no annotation of the library can express


def named(name: str, names: Iterable[str], path: str) -> str | None:
    """The name in a file that a declared name means: the same one, else one that differs only in upper and lower case.
    None if there is none. Raises SchemaMismatch if there are several."""
    among = list(names)
    if name in among:
        if among.count(name) == 1:
            return name
        found = [name, name]
    else:
        found = [other for other in among if other.lower() == name.lower()]
    if len(found) > 1:
        raise mismatch(path, f"it has several columns named {name}")
    return found[0] if found else None


def require_fit(schema: Iterable[Field], found: pa.Schema, path: str) -> None:
    """Raise SchemaMismatch unless the columns of a file can become the declared ones. A column may be missing."""
    present = 0
    for field in schema:
        name = named(field.name, found.names, path)
        if name is not None:
            present += 1
            _require(field.name, field.type, found.field(name).type, path)
    if not present:
        raise mismatch(path, "it has none of the declared columns")


def mismatch(path: str, why: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"{path} does not fit the stream: {why}",
        advice="Correct or remove the file, then START a pipeline of the stream. If all files are like that, declare "
        "the columns as the files have them. To leave such files out: CREATE OR REPLACE STREAM with the same "
        "definition and on_bad_file = 'skip'; pipelines and progress are kept.",
        path=path,
        why=why,
    )


def _require(name: str, kind: DataType, found: Any, path: str) -> None:
    if isinstance(kind, Struct) and pa.types.is_struct(found):
        inner = [found.field(i).name for i in range(found.num_fields)]
        for part in kind.fields:
            other = named(part.name, inner, path)
            if other is not None:
                _require(f"{name}.{part.name}", part.type, found.field(other).type, path)
    elif isinstance(kind, Array) and _is_list(found):
        _require(f"{name}[]", kind.element, found.value_type, path)
    elif isinstance(kind, Map) and pa.types.is_map(found):
        _require(f"{name}.key", kind.key, found.key_type, path)
        _require(f"{name}.value", kind.value, found.item_type, path)
    elif not _fits(found, kind):
        raise mismatch(path, f"column {name} is declared {kind}, and the file has {found}")


def _is_list(found: pa.DataType) -> bool:
    kinds = pa.types
    return (
        kinds.is_list(found)
        or kinds.is_large_list(found)
        or kinds.is_fixed_size_list(found)
        or kinds.is_list_view(found)
        or kinds.is_large_list_view(found)
    )


def _fits(found: Any, kind: DataType) -> bool:
    kinds: Any = pa.types
    if found == kind.arrow or kinds.is_null(found):
        return True
    if kinds.is_dictionary(found):
        return _fits(found.value_type, kind)
    if isinstance(kind, Decimal):
        return _fits_decimal(found, kind)
    if not isinstance(kind, Scalar):
        return False
    width = found.bit_width // 8 if kinds.is_integer(found) else 0
    name = kind.name
    if name in _INTEGERS:
        return 0 < width < _INTEGERS[name] or (width == _INTEGERS[name] and kinds.is_signed_integer(found))
    if name == "FLOAT":
        return bool(kinds.is_float16(found))
    if name == "DOUBLE":
        return bool(kinds.is_floating(found)) or 0 < width <= 4
    if name == "STRING":
        return bool(kinds.is_large_string(found) or kinds.is_string_view(found))
    if name == "BINARY":
        texts = kinds.is_string(found) or kinds.is_large_string(found) or kinds.is_string_view(found)
        return bool(texts or kinds.is_large_binary(found) or kinds.is_binary_view(found)) or _is_fixed(found)
    if name == "DATE":
        return bool(kinds.is_date64(found))
    if name == "TIMESTAMP":
        return bool(kinds.is_timestamp(found))
    if name == "TIMESTAMP_NTZ":
        return bool(kinds.is_date(found)) or (bool(kinds.is_timestamp(found)) and found.tz is None)
    return False


def _is_fixed(found: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(found)) and not pa.types.is_decimal(found)


def _fits_decimal(found: Any, kind: Decimal) -> bool:
    if pa.types.is_integer(found):
        digits = _DIGITS[found.bit_width // 8]
        return kind.precision - kind.scale >= (19 if found == pa.int64() else digits)
    return bool(
        pa.types.is_decimal(found)
        and found.scale <= kind.scale
        and found.precision - found.scale <= kind.precision - kind.scale
    )


def conformed(column: pa.ChunkedArray[Any] | None, kind: DataType, rows: int, path: str) -> Parsed:
    """A column of a file, which `require_fit` accepts, as the declared type. All NULL if the file lacks it."""
    count_cells(rows)
    if column is None:
        return Parsed(_arrow.nulls(rows, kind.arrow), _NO_STATUS, 0)
    whole: Any = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # a version of the library that keeps chunks
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else _arrow.nulls(0, whole.type)
    return _converted(whole, kind, path)


def _converted(array: Any, kind: DataType, path: str) -> Parsed:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        return Parsed(_arrow.nulls(len(array), kind.arrow), _NO_STATUS, 0)
    if isinstance(kind, Scalar) and kind.name in ("TIMESTAMP", "TIMESTAMP_NTZ", "DATE"):
        return _times(array, kind)
    if isinstance(kind, Struct | Array | Map):
        return _nested(array, kind, path)
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        if kind.arrow == pa.binary():
            return Parsed(array.cast(pa.binary()), _NO_STATUS, 0)
        return _texts(array.cast(pa.string()) if array.type != pa.string() else array)
    return Parsed(array if array.type == kind.arrow else array.cast(kind.arrow), _NO_STATUS, 0)


def _texts(array: Any) -> Parsed:
    if _valid(array):
        return Parsed(array, _NO_STATUS, 0)
    bad = np.fromiter((not _valid(array.slice(i, 1)) for i in range(len(array))), np.bool_, len(array))
    return _without(array, bad, "bad_utf8")


def _valid(array: Any) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _times(array: Any, kind: DataType) -> Parsed:
    days = kind.arrow == pa.date32()
    if days and array.type == pa.date64():
        array = array.cast(pa.date32(), safe=False)
    elif pa.types.is_date(array.type) and not days:
        array = array.cast(pa.date32(), safe=False).cast(pa.timestamp("s"))
    missing = np.asarray(array.is_null())
    numbers = array.cast(pa.int32() if days else pa.int64()).fill_null(0).to_numpy()
    low, high = (_FIRST_DAY, _LAST_DAY) if days else (_FIRST, _LAST)
    unit = "us" if days else array.type.unit
    factor = _PER_MICRO[unit]
    if unit == "ns":
        numbers = np.floor_divide(numbers, factor)
        bad = (numbers < low) | (numbers > high)
    else:
        bad = (numbers < -(-low // factor)) | (numbers > high // factor)
        numbers = np.where(bad, 0, numbers) * factor if factor > 1 else numbers
    bad &= ~missing
    target = pa.int32() if days else pa.int64()
    values: Any = _arrow.array(numbers, target, mask=(missing | bad) if missing.any() or bad.any() else None)
    return _marked(values.view(kind.arrow), bad, "out_of_range")


def _without(array: Any, bad: npt.NDArray[np.bool_], reason: str) -> Parsed:
    """The array with NULL for the bad cells."""
    return _marked(pc.if_else(pa.array(bad), pa.scalar(None, array.type), array), bad, reason)


def _marked(array: Any, bad: npt.NDArray[np.bool_], reason: str) -> Parsed:
    count = int(np.count_nonzero(bad))
    if not count:
        return Parsed(array, _NO_STATUS, 0)
    return Parsed(array, np.where(bad, np.uint8(status_of(reason)), np.uint8(FINE)), count)


def _nested(array: Any, kind: DataType, path: str) -> Parsed:
    built, odd = _built(array, kind, path)
    if not odd:
        return Parsed(built, _NO_STATUS, 0)
    # A part is bad: look at the cells one by one. A bad part makes its whole cell bad, as in JSON.
    bad = np.fromiter((_built(array.slice(i, 1), kind, path)[1] > 0 for i in range(len(array))), np.bool_, len(array))
    return _without(built, bad, "bad_nested")


def _built(array: Any, kind: DataType, path: str) -> tuple[Any, int]:
    """A nested array with converted parts, and how many parts are bad."""
    nulls = array.is_null() if array.null_count else None
    if isinstance(kind, Struct):
        inner = [array.type.field(i).name for i in range(array.type.num_fields)]
        parts = []
        for field in kind.fields:
            name = named(field.name, inner, path)
            if name is None:
                parts.append(Parsed(_arrow.nulls(len(array), field.type.arrow), _NO_STATUS, 0))
            else:
                parts.append(_converted(pc.struct_field(array, [inner.index(name)]), field.type, path))
        made: Any = _arrow.StructArray.from_arrays([p.array for p in parts], fields=list(_fields(kind)), mask=nulls)
        return made, sum(p.odd for p in parts)
    if isinstance(kind, Array):
        values = _converted(array.flatten(), kind.element, path)
        sizes = pc.list_value_length(array).fill_null(0).to_numpy()
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        return _arrow.ListArray.from_arrays(
            _arrow.array(offsets), values.array, type=kind.arrow, mask=nulls
        ), values.odd
    assert isinstance(kind, Map)
    offsets = np.asarray(array.offsets)
    first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys = _converted(array.keys.slice(first, size), kind.key, path)
    items = _converted(array.items.slice(first, size), kind.value, path)
    places = _arrow.array((offsets - first).astype(np.int32))
    made = _arrow.MapArray.from_arrays(places, keys.array, items.array, type=kind.arrow, mask=nulls)
    return made, keys.odd + items.odd


def _fields(kind: Struct) -> Any:
    return (kind.arrow.field(i) for i in range(len(kind.fields)))
