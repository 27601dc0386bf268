"""Functions between bytes and texts: base 32, keyed digests, and to_char of binary values."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.exec.kernels.codes import DIGESTS
from headrace.model.schema import BINARY, DOUBLE, STRING
from headrace.sql.functions.binary_functions import BASE64
from headrace.sql.functions.overload import Overload
from headrace.sql.functions.regex_functions import unquoted
from headrace.sql.plan.expr import Expr, Literal

_S, _B = "STRING", "BINARY"
_WRITTEN = {"hex": "hex({0})", "base64": BASE64, "utf-8": "decode({0})"}


def _word(argument: Expr) -> str | None:
    value = argument.value if isinstance(argument, Literal) else None
    return value if isinstance(value, str) else None


def _check_digest(args: Sequence[Expr]) -> str | None:
    return None if (_word(args[2]) or "").upper() in DIGESTS else "this algorithm"


def _check_written(args: Sequence[Expr]) -> str | None:
    return None if (_word(args[1]) or "").lower() in _WRITTEN else "this format"


def _text(args: Sequence[str]) -> str:
    return _WRITTEN[(unquoted(args[1]) or "").lower()].format(args[0])


OVERLOADS: tuple[Overload, ...] = (
    Overload("to_base32", (_B,), STRING, "hr_to_base32({0})", exact=(0,)),
    Overload("to_base32", (_S,), STRING, "hr_to_base32(encode({0}))", exact=(0,)),
    Overload("from_base32", (_S,), BINARY, "hr_from_base32({0})"),
    *(
        Overload(
            "hmac",
            (kind, kind, *more),
            BINARY,
            f"hr_hmac({form.format('{0}')}, {form.format('{1}')}, {'{2}' if more else repr('SHA-256')})",
            throws=True,
            constant=(2,) if more else (),
            check=_check_digest if more else None,
        )
        for kind, form in ((_B, "{}"), (_S, "encode({})"))
        for more in ((), (_S,))
    ),
    Overload("jaro_winkler_similarity", (_S, _S), DOUBLE, "hr_jaro_winkler({0}, {1})"),
    *(
        Overload(
            name,
            (_B, _S),
            STRING,
            lambda a, k, r: _text(a),
            throws=True,
            constant=(1,),
            check=_check_written,
            exact=(0,),
        )
        for name in ("to_char", "to_varchar")
    ),
    Overload("collation", (_S,), STRING, "'SYSTEM.BUILTIN.UTF8_BINARY'"),
)
