"""Hash functions: digests of strings and binary values, and Spark's `hash` and `xxhash64` of any values."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.schema import BIGINT, INT, STRING, Array, DataType, Decimal, Map, Struct, duck_name
from headrace.sql.functions.overload import Overload, literal_int
from headrace.sql.plan.expr import Expr
from headrace.sql.plan.types import INTERVAL_MICROS, INTERVAL_MONTHS, VOID, type_class

_LONG_DIGITS = 18  # decimals up to here are hashed as a BIGINT


def _hashed(family: str, text: str, kind: DataType, seed: str) -> str:
    """The hash of one value with the hash of the values before as its seed."""
    if kind == VOID:
        return seed
    if isinstance(kind, Struct):
        for field in kind.fields:
            seed = _hashed(family, f"({text}).{duck_name(field.name)}", field.type, seed)
        return seed
    if isinstance(kind, Decimal):
        unscaled = f"replace(CAST({text} AS VARCHAR), '.', '')"
        if kind.precision <= _LONG_DIGITS:
            return f"hr_{family}_long(CAST({unscaled} AS BIGINT), {seed})"
        return f"hr_{family}_bytes(hr_big_integer(CAST({unscaled} AS DECIMAL(38,0))), {seed})"
    name, value = {
        "BOOLEAN": ("int", f"CAST({text} AS INTEGER)"),
        "TINYINT": ("int", text),
        "SMALLINT": ("int", text),
        "INT": ("int", text),
        "DATE": ("int", f"CAST({text} - DATE '1970-01-01' AS INTEGER)"),
        "BIGINT": ("long", text),
        "TIMESTAMP": ("long", f"epoch_us({text})"),
        "TIMESTAMP_NTZ": ("long", f"epoch_us({text})"),
        "FLOAT": ("float", text),
        "DOUBLE": ("double", text),
        "STRING": ("text", text),
        "BINARY": ("bytes", text),
    }[type_class(kind)]
    return f"hr_{family}_{name}({value}, {seed})"


def _chained(family: str, args: Sequence[str], kinds: Sequence[DataType], seed: str) -> str:
    for text, kind in zip(args, kinds, strict=True):
        seed = _hashed(family, text, kind, seed)
    return seed


def _nested(kind: DataType) -> bool:
    inner = [f.type for f in kind.fields] if isinstance(kind, Struct) else []
    return isinstance(kind, Array | Map) or kind in (INTERVAL_MICROS, INTERVAL_MONTHS) or any(map(_nested, inner))


def _check(args: Sequence[Expr]) -> str | None:
    return "an ARRAY, a MAP or an INTERVAL" if any(_nested(a.type) for a in args) else None


def _digest(name: str, result: DataType, sql: str) -> list[Overload]:
    """For STRING and BINARY. Spark casts no other type to BINARY."""
    return [
        Overload(name, ("STRING",), result, sql.replace("{0}", "encode({0})") if "hr_" in sql else sql, exact=(0,)),
        Overload(name, ("BINARY",), result, sql, exact=(0,)),
    ]


def _sha2(value: str, kind: DataType, bits: str) -> str:
    width = literal_int(bits)
    if width in (0, 256):
        return f"sha256({value})"
    data = f"encode({value})" if kind == STRING else value
    return f"hr_sha2({data}, {width})" if width in (224, 384, 512) else "CAST(NULL AS VARCHAR)"


def _of_bits(kind: str) -> Overload:
    return Overload(
        "sha2", (kind, "INT"), STRING, lambda a, k, r: _sha2(a[0], k[0], a[1]), constant=(1,), slow=True, exact=(0,)
    )


def _any(name: str, result: DataType, family: str) -> Overload:
    seed = f"42::{result.duckdb}"
    return Overload(name, ("ANY",), result, lambda a, k, r: _chained(family, a, k, seed), variadic=True, check=_check)


OVERLOADS: tuple[Overload, ...] = (
    *_digest("md5", STRING, "md5({0})"),
    *_digest("sha1", STRING, "sha1({0})"),
    *_digest("crc32", BIGINT, "hr_crc32({0})"),
    _of_bits("STRING"),
    _of_bits("BINARY"),
    _any("hash", INT, "murmur"),
    _any("xxhash64", BIGINT, "xxh"),
)
