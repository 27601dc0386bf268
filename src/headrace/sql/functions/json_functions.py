"""Functions on JSON texts and URLs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.model.schema import INT, STRING, Array
from headrace.sql.functions.overload import Overload
from headrace.sql.plan.expr import Expr, Literal

_S = "STRING"


def _key_of(kernel: str, args: Sequence[str]) -> str:
    """The value of a key in the query: the text after the first `key=` at its start or after an ampersand."""
    pattern = "'(?:&|^)" + args[2][1:-1] + "=([^&]*)'" if args[2].startswith("'") else None
    query = f"{kernel}({args[0]}, {args[1]})"
    if pattern is None:
        return "CAST(NULL AS VARCHAR)"
    return f"CASE WHEN regexp_matches({query}, {pattern}) THEN regexp_extract({query}, {pattern}, 1) END"


def _check_key(args: Sequence[Expr]) -> str | None:
    """Spark uses the key as a regular expression, so only keys without special characters are exact."""
    part = args[1].value if isinstance(args[1], Literal) else None
    key = args[2].value if isinstance(args[2], Literal) else None
    if part is not None and part != "QUERY":
        return "a key for another part than QUERY"
    return None if key is None or re.fullmatch(r"[\w-]+", key, re.ASCII) else "a key with special characters"


def _url(name: str, kernel: str, throws: bool) -> list[Overload]:
    return [
        Overload(name, (_S, _S), STRING, f"{kernel}({{0}}, {{1}})", throws=throws),
        Overload(
            name,
            (_S, _S, _S),
            STRING,
            lambda a, k, r: _key_of(kernel, a),
            throws=throws,
            constant=(1, 2),
            check=_check_key,
            slow=True,
        ),
    ]


OVERLOADS: tuple[Overload, ...] = (
    Overload("get_json_object", (_S, _S), STRING, "hr_json_get({0}, {1})"),
    Overload("json_array_length", (_S,), INT, "hr_json_length({0})"),
    Overload("json_object_keys", (_S,), Array(STRING), "hr_json_keys({0})"),
    *_url("parse_url", "hr_url_part", throws=True),
    *_url("try_parse_url", "hr_url_try_part", throws=False),
    # DuckDB keeps ~ and escapes *, and writes a blank as %20.
    Overload(
        "url_encode", (_S,), STRING, "replace(replace(replace(url_encode({0}), '%20', '+'), '%2A', '*'), '~', '%7E')"
    ),
    Overload("url_decode", (_S,), STRING, "hr_url_decode({0})", throws=True),
    Overload("try_url_decode", (_S,), STRING, "hr_url_try_decode({0})"),
)
