"""One expression for each function and each cast of the shared host, over the columns of `bench.function_rows`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.sql.functions import FUNCTIONS
from headrace.sql.functions.casts import CASTS
from headrace.sql.functions.overload import Overload
from tests.sql.functions.page import is_slow

# The columns of a type, for the first and the second argument.
_COLUMNS = {
    "BOOLEAN": ("b", "b2"), "TINYINT": ("t", "t2"), "SMALLINT": ("s", "s2"), "INT": ("i", "j"), "BIGINT": ("l", "l2"),
    "FLOAT": ("f", "f2"), "DOUBLE": ("d", "d2"), "DECIMAL": ("m", "m2"), "STRING": ("x", "y"), "BINARY": ("r", "r2"),
    "DATE": ("dt", "dt2"), "TIMESTAMP": ("ts", "ts2"), "TIMESTAMP_NTZ": ("n", "n2"), "ARRAY": ("a", "a2"),
    "MAP": ("mp", "mp2"), "STRUCT": ("st", "st2"), "ANY": ("i", "j"),
}  # fmt: skip
_INFIX = ("+", "-", "*", "/", "%", "div", "=", "!=", "<", "<=", ">", ">=", "<=>", "and", "or", "||", "&", "|", "^")
_PREFIX = {"not": "NOT ", "negative": "-", "positive": "+", "~": "~"}

# Functions whose arguments are literals, lambdas or columns of their own.
WRITTEN = {
    "make_dt_interval": "ts + make_dt_interval(k, k, k, m2)",
    "make_ym_interval": "ts + make_ym_interval(k, k)",
    "time plus interval": "ts + make_dt_interval(k, k, k, 1.5)",
    "time plus make_interval": "ts + make_interval(0, k, 0, k, k, k, 1.5)",
    "time minus make_interval": "ts - make_interval(0, k, 0, k, k, k, 1.5)",
    "time plus try_make_interval": "ts + try_make_interval(0, k, 0, k, k, k, 1.5)",
    "time minus try_make_interval": "ts - try_make_interval(0, k, 0, k, k, k, 1.5)",
    "time minus time": "extract(day FROM ts - ts2)",
    "interval divided": "extract(day FROM (ts - ts2) / k)",
    "interval seconds": "extract(second FROM ts - ts2)",
    "interval text": "string(ts - ts2)",
    "interval micros": "ts + CAST(num AS INTERVAL SECOND)",
    "interval months": "ts + CAST(right(num, 3) AS INTERVAL MONTH)",
    "try interval micros": "ts + TRY_CAST(num AS INTERVAL SECOND)",
    "try interval months": "ts + TRY_CAST(right(num, 3) AS INTERVAL MONTH)",
    "*": "k * j",
    "+": "i + j",
    "-": "i - j",
    "acos": "acos(u)",
    "acosh": "acosh(d)",
    "add_months": "add_months(dt, k)",
    "aggregate": "aggregate(a, 0, (s, e) -> s + e)",
    "array": "array(i, j, 5)",
    "array_append": "array_append(a, j)",
    "array_contains": "array_contains(a, j)",
    "array_insert": "array_insert(a, 2, j)",
    "array_join": "array_join(c, '-')",
    "array_position": "array_position(a, j)",
    "array_prepend": "array_prepend(a, j)",
    "array_remove": "array_remove(a, j)",
    "array_repeat": "array_repeat(i, 4)",
    "arrays_zip": "arrays_zip(a, c)",
    "asin": "asin(u)",
    "assert_true": "coalesce(assert_true(i > 0), j)",
    "atanh": "atanh(u)",
    "base64": "base64(x)",
    "bit_get": "bit_get(i, k)",
    "bit_length": "bit_length(x)",
    "bround": "bround(d, 2)",
    "concat": "concat(x, y)",
    "concat_ws": "concat_ws('-', x, y)",
    "contains": "contains(x, 'or')",
    "conv": "conv(num, 10, 16)",
    "convert_timezone": "convert_timezone('Europe/Berlin', 'UTC', n)",
    "cosh": "cosh(u)",
    "crc32": "crc32(x)",
    "date_add": "date_add(dt, k)",
    "date_format": "date_format(ts, 'yyyy-MM-dd HH:mm')",
    "date_from_unix_date": "date_from_unix_date(i)",
    "date_sub": "date_sub(dt, k)",
    "date_trunc": "date_trunc('hour', ts)",
    "decode": "decode(encode(x, 'UTF-8'), 'UTF-8')",
    "element": "a[1]",
    "element_at": "element_at(a, 2)",
    "elt": "elt(1 + k % 2, x, y)",
    "encode": "encode(x, 'UTF-16BE')",
    "endswith": "endswith(x, 'or')",
    "exists": "exists(a, e -> e > 500)",
    "exp": "exp(u)",
    "expm1": "expm1(u)",
    "extract dow_iso": "extract(dow_iso FROM ts)",
    "extract second": "extract(second FROM ts)",
    "extract yearofweek": "extract(yearofweek FROM ts)",
    "factorial": "factorial(k)",
    "filter": "filter(a, e -> e > 500)",
    "find_in_set": "find_in_set(y, 'alpha,beta,gamma')",
    "flatten": "flatten(array(a, a2))",
    "forall": "forall(a, e -> e > 5)",
    "format_number": "format_number(d, 2)",
    "format_string": "format_string('%s-%d', y, i)",
    "from_base32": "from_base32(b32)",
    "from_json": "from_json(js, 'a INT, b STRING')",
    "from_unixtime": "from_unixtime(l, 'yyyy-MM-dd')",
    "from_utc_timestamp": "from_utc_timestamp(ts, 'Europe/Berlin')",
    "get": "get(a, 1)",
    "get_json_object": "get_json_object(js, '$.b')",
    "getbit": "getbit(i, k)",
    "greatest": "greatest(i, j, 5)",
    "hash": "hash(x)",
    "hex": "hex(l)",
    "hmac": "hmac(x, y)",
    "ilike": "x ILIKE '%OR%'",
    "in": "i IN (1, 2, 3, 500)",
    "initcap": "initcap(x)",
    "json_array_length": "json_array_length(ja)",
    "json_object_keys": "json_object_keys(js)",
    "least": "least(i, j, 5)",
    "left": "left(x, 5)",
    "length": "length(x)",
    "levenshtein": "levenshtein(y, 'gamma')",
    "like": "x LIKE '%or%'",
    "locate": "locate('or', x)",
    "log": "log(d)",
    "log1p": "log1p(d)",
    "lpad": "lpad(x, 30, '*')",
    "luhn_check": "luhn_check(num)",
    "make_date": "make_date(2024, k, k)",
    "make_timestamp": "make_timestamp(2024, k, k, k, k, k)",
    "make_timestamp_ltz": "make_timestamp_ltz(2024, k, k, k, k, k)",
    "make_timestamp_ntz": "make_timestamp_ntz(2024, k, k, k, k, k)",
    "map": "map(x, i, y, j)",
    "map_concat": "map_concat(mp, map('zz', j))",
    "map_contains_key": "map_contains_key(mp, 'alpha')",
    "map_filter": "map_filter(mp, (k1, v1) -> v1 > 500)",
    "map_from_arrays": "map_from_arrays(array('a', 'b'), array(i, j))",
    "map_from_entries": "map_from_entries(map_entries(mp))",
    "map_zip_with": "map_zip_with(mp, mp2, (k1, v1, v2) -> v1 + v2)",
    "md5": "md5(x)",
    "months_between": "months_between(ts, ts2)",
    "named_struct": "named_struct('p', i, 'q', x)",
    "next_day": "next_day(dt, 'MO')",
    "octet_length": "octet_length(x)",
    "overlay": "overlay(x, 'zz', 3)",
    "parse_url": "parse_url(url, 'HOST')",
    "power": "power(d, 2D)",
    "raise_error": "coalesce(i, raise_error('x'))",
    "regexp_count": "regexp_count(x, 'o')",
    "regexp_extract": "regexp_extract(x, '([a-z]+) ([a-z]+)', 2)",
    "regexp_extract_all": "regexp_extract_all(x, '([a-z]+)', 1)",
    "regexp_instr": "regexp_instr(x, 'or')",
    "regexp_replace": "regexp_replace(x, 'o+', '0')",
    "regexp_substr": "regexp_substr(x, 'o[a-z]')",
    "repeat": "repeat(y, 3)",
    "replace": "replace(x, 'or', 'XY')",
    "reverse": "reverse(x)",
    "right": "right(x, 5)",
    "rlike": "x RLIKE 'or.m'",
    "round": "round(d, 2)",
    "rpad": "rpad(x, 30, '*')",
    "sequence": "sequence(1, k)",
    "sha1": "sha1(x)",
    "sha2": "sha2(x, 256)",
    "shiftleft": "shiftleft(i, k)",
    "shiftright": "shiftright(i, k)",
    "shiftrightunsigned": "shiftrightunsigned(i, k)",
    "sinh": "sinh(u)",
    "slice": "slice(a, 2, 2)",
    "space": "space(k)",
    "split": "split(x, ' ')",
    "split_part": "split_part(x, ' ', 1)",
    "startswith": "startswith(x, 'lo')",
    "str_to_map": "str_to_map(kv)",
    "struct": "struct(i, x)",
    "substring": "substring(x, 3, 5)",
    "substring_index": "substring_index(x, ' ', 2)",
    "timestamp_micros": "timestamp_micros(l)",
    "timestampadd": "timestampadd(HOUR, k, ts)",
    "timestampdiff": "timestampdiff(HOUR, ts, ts2)",
    "to_base32": "to_base32(x)",
    "to_binary": "to_binary(hx, 'hex')",
    "to_char": "to_char(r, 'hex')",
    "to_number": "to_number(num, 'S9999999999')",
    "try_to_number": "try_to_number(num, 'S9999999999')",
    "to_date": "to_date(dts, 'yyyy-MM-dd')",
    "to_timestamp": "to_timestamp(tss, 'yyyy-MM-dd HH:mm:ss')",
    "to_timestamp_ltz": "to_timestamp_ltz(tss, 'yyyy-MM-dd HH:mm:ss')",
    "to_timestamp_ntz": "to_timestamp_ntz(tss, 'yyyy-MM-dd HH:mm:ss')",
    "to_unix_timestamp": "to_unix_timestamp(tss, 'yyyy-MM-dd HH:mm:ss')",
    "to_utc_timestamp": "to_utc_timestamp(ts, 'Europe/Berlin')",
    "to_varchar": "to_varchar(r, 'base64')",
    "transform": "transform(a, e -> e + 1)",
    "transform_keys": "transform_keys(mp, (k1, v1) -> upper(k1))",
    "transform_values": "transform_values(mp, (k1, v1) -> v1 + 1)",
    "translate": "translate(x, 'aeiou', '12345')",
    "trunc": "trunc(dt, 'month')",
    "try_divide": "try_divide(d, d2)",
    "try_element_at": "try_element_at(a, 9)",
    "try_make_timestamp": "try_make_timestamp(2024, k, k, k, k, k)",
    "try_make_timestamp_ltz": "try_make_timestamp_ltz(2024, k, k, k, k, k)",
    "try_make_timestamp_ntz": "try_make_timestamp_ntz(2024, k, k, k, k, k)",
    "try_parse_url": "try_parse_url(url, 'HOST')",
    "try_to_binary": "try_to_binary(hx, 'hex')",
    "try_to_date": "try_to_date(dts, 'yyyy-MM-dd')",
    "try_to_timestamp": "try_to_timestamp(tss, 'yyyy-MM-dd HH:mm:ss')",
    "try_url_decode": "try_url_decode(enc)",
    "typeof": "typeof(i)",
    "unbase64": "unbase64(b64)",
    "unhex": "unhex(hx)",
    "unix_timestamp": "unix_timestamp(tss, 'yyyy-MM-dd HH:mm:ss')",
    "url_decode": "url_decode(enc)",
    "url_encode": "url_encode(url)",
    "vector_cosine_similarity": "vector_cosine_similarity(v, v)",
    "vector_inner_product": "vector_inner_product(v, v)",
    "vector_l2_distance": "vector_l2_distance(v, v)",
    "vector_norm": "vector_norm(v)",
    "vector_normalize": "vector_normalize(v)",
    "width_bucket": "width_bucket(d, 0D, 1000D, 10)",
    "xxhash64": "xxhash64(x)",
    "zip_with": "zip_with(a, a2, (e, g) -> e + g)",
}

# Texts that can be cast to a type.
_TEXTS = {"BOOLEAN": "tf", "DATE": "dts", "TIMESTAMP": "tss", "TIMESTAMP_NTZ": "tss", "BINARY": "x"}
_SECONDS = ("TINYINT", "SMALLINT")


@dataclass(frozen=True, slots=True)
class Entry:
    """An expression that calls a function or a cast. A `slow` one is marked so in the list."""

    name: str
    text: str
    slow: bool


def _call(overload: Overload) -> str:
    used: dict[str, int] = {}
    args = []
    for param in overload.params:
        at = used[param] = used.get(param, -1) + 1
        args.append(_COLUMNS[param][min(at, 1)])
    name = overload.name
    if name in _PREFIX:
        return f"({_PREFIX[name]}{args[0]})"
    return f"({args[0]} {name} {args[1]})" if name in _INFIX else f"{name}({', '.join(args)})"


def _cast(source: str, target: str) -> str:
    column = _COLUMNS[source][0]
    if source == "STRING":
        column = _TEXTS.get(target, "num")
    if target in _SECONDS and source == "TIMESTAMP":
        column = "ts0"
    elif target in _SECONDS:
        column = {"STRING": "sml", "BIGINT": "l0", "INT": "k", "FLOAT": "f2", "DOUBLE": "d2", "DECIMAL": "m2"}.get(
            source, column
        )
    elif source == "BINARY":
        column = "tx"
    return f"CAST({column} AS {'DECIMAL(20,2)' if target == 'DECIMAL' else target})"


def entries() -> Iterator[Entry]:
    """An entry for each function by its first overload, and for each cast."""
    for name, overloads in FUNCTIONS.items():
        text = WRITTEN.get(name)
        slow = any(is_slow(o) for o in overloads)
        yield Entry(name, text if text is not None else _call(overloads[0]), slow)
    for source, target in CASTS:
        yield Entry(f"cast {source} to {target}", _cast(source, target), False)
