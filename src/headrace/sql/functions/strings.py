"""Functions on strings. Positions and lengths count characters (code points), as in Spark."""

from __future__ import annotations

from headrace.schema import BOOLEAN, INT, STRING
from headrace.sql.functions.base import Overload

_S = "STRING"

OVERLOADS: tuple[Overload, ...] = (
    Overload("upper", (_S,), STRING, "upper(replace({0}, 'ß', 'SS'))"),
    Overload("lower", (_S,), STRING, "lower({0})"),
    Overload("length", (_S,), INT, "CAST(length({0}) AS INTEGER)"),
    Overload("octet_length", (_S,), INT, "CAST(strlen({0}) AS INTEGER)"),
    Overload("bit_length", (_S,), INT, "CAST(bit_length({0}) AS INTEGER)"),
    Overload("trim", (_S,), STRING, "trim({0}, ' ')"),
    Overload("ltrim", (_S,), STRING, "ltrim({0}, ' ')"),
    Overload("rtrim", (_S,), STRING, "rtrim({0}, ' ')"),
    Overload("reverse", (_S,), STRING, "reverse({0})"),
    Overload("concat", (_S,), STRING, lambda a, k, r: "(" + " || ".join(a) + ")", variadic=True),
    Overload("replace", (_S, _S, _S), STRING, "CASE WHEN {1} = '' THEN {0} ELSE replace({0}, {1}, {2}) END"),
    Overload("startswith", (_S, _S), BOOLEAN, "starts_with({0}, {1})"),
    Overload("endswith", (_S, _S), BOOLEAN, "ends_with({0}, {1})"),
    Overload("contains", (_S, _S), BOOLEAN, "contains({0}, {1})"),
    Overload("instr", (_S, _S), INT, "CAST(strpos({0}, {1}) AS INTEGER)"),
    Overload("repeat", (_S, "INT"), STRING, "repeat({0}, greatest({1}, 0))"),
    Overload("left", (_S, "INT"), STRING, "left({0}, greatest({1}, 0))"),
    Overload("right", (_S, "INT"), STRING, "right({0}, greatest({1}, 0))"),
    Overload(
        "substring",
        (_S, "INT", "INT"),
        STRING,
        # Spark counts a negative start from the end and clips a window that begins before the text
        "CASE WHEN {2} <= 0 THEN CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL ELSE '' END "
        "WHEN {1} > 0 THEN substring({0}, {1}, {2}) "
        "WHEN {1} = 0 THEN substring({0}, 1, {2}) "
        "WHEN length({0}) + {1} >= 0 THEN substring({0}, length({0}) + {1} + 1, {2}) "
        "ELSE substring({0}, 1, greatest({2}::BIGINT + {1} + length({0}), 0)) END",
    ),
    Overload(
        "substring",
        (_S, "INT"),
        STRING,
        "CASE WHEN {1} > 0 THEN substring({0}, {1}) WHEN {1} = 0 OR length({0}) + {1} < 0 THEN {0} "
        "ELSE substring({0}, length({0}) + {1} + 1) END",
    ),
    Overload("lpad", (_S, "INT", _S), STRING, "CASE WHEN {2} = '' THEN left({0}, greatest({1}, 0)) "
             "ELSE lpad({0}, greatest({1}, 0), {2}) END"),
    Overload("rpad", (_S, "INT", _S), STRING, "CASE WHEN {2} = '' THEN left({0}, greatest({1}, 0)) "
             "ELSE rpad({0}, greatest({1}, 0), {2}) END"),
    Overload("like", (_S, _S), BOOLEAN, "({0} LIKE {1} ESCAPE '\\')", constant=(1,)),
    Overload("ilike", (_S, _S), BOOLEAN, "({0} ILIKE {1} ESCAPE '\\')", constant=(1,)),
    Overload("rlike", (_S, _S), BOOLEAN, "regexp_matches({0}, {1})", constant=(1,)),
    Overload("ascii", (_S,), INT, "CASE WHEN {0} = '' THEN 0 ELSE CAST(unicode({0}) AS INTEGER) END"),
    Overload("md5", (_S,), STRING, "md5({0})"),
    Overload("sha2", (_S, "INT"), STRING, "CASE WHEN {1} IN (0, 256) THEN sha256({0}) END", constant=(1,)),
    Overload("translate", (_S, _S, _S), STRING, "translate({0}, {1}, {2})"),
)  # fmt: skip
