"""Binds functions that other functions or operators define: the try_ family, equal_null, zeroifnull and others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.errors import BadLiteral
from headrace.exec.kernels.date_patterns import unknown_letter
from headrace.model.schema import DATE, DOUBLE, INT, STRING, TIMESTAMP, TIMESTAMP_NTZ, Array, Decimal, Map, Struct
from headrace.sql.bind.calendar_intervals import refuse_calendar_interval
from headrace.sql.bind.collection_calls import CallBinder
from headrace.sql.bind.document_calls import bind_from_json, bind_schema_of_json
from headrace.sql.bind.interval_calls import bind_maker, bind_time_bucket
from headrace.sql.bind.operand_types import bind_binary
from headrace.sql.functions.fallibility import throws
from headrace.sql.functions.interval_functions import CALENDAR_MAKERS, MAKERS
from headrace.sql.functions.number_formats import number_format
from headrace.sql.functions.try_functions import TRIED
from headrace.sql.parse.syntax import Apply
from headrace.sql.plan.expr import Call, CaseWhen, Cast, Expr, Literal
from headrace.sql.plan.types import INTEGRAL, VOID, is_numeric, wider

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder


def bind_derived(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """The call of a function that others define. None if the overloads of `name` decide."""
    handler = _HANDLERS.get(name)
    return None if handler is None or node.operator else handler(binder, name, args, node)


def _tried(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """The operands as the operator casts them. Its own errors become NULL, and those of the cast of a STRING, but not
    others of the operands."""
    if len(args) != 2:
        return None
    bound = bind_binary(binder=binder, name=TRIED[name], left=args[0], right=args[1], at=node.at)
    if not isinstance(bound, Call) or bound.name != TRIED[name]:
        binder.unsupported(
            f"{name} of {args[0].type} and {args[1].type}", "It takes numbers, or a DATE and an INT.", node.at
        )
    if bound.args[0].type == DATE and any(throws(arg) for arg in bound.args):
        # In Spark these also turn failures of their operands into NULL.
        binder.unsupported(f"{name} of a DATE and operands that may fail", "Use TRY_CAST inside it.", node.at)
    if not any(arg.type == STRING for arg in args):
        return binder.call(name, bound.args, node.at)
    if any(map(throws, args)):  # with a STRING, Spark turns all failures into NULL
        binder.unsupported(f"{name} of a STRING and operands that may fail", "Use TRY_CAST inside it.", node.at)
    operands = (_attempted(expr, arg) for expr, arg in zip(bound.args, args, strict=True))
    return binder.call(name, tuple(operands), node.at)


def _attempted(expr: Expr, operand: Expr) -> Expr:
    """`expr`, which is a text `operand` as the operator casts it, with TRY_CAST."""
    if operand.type != STRING or expr is operand or not isinstance(expr, Cast):
        return expr
    return replace(expr, input=_attempted(expr.input, operand), attempt=True)


def _equal_null(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    if len(args) != 2:
        return None
    return bind_binary(binder=binder, name="<=>", left=args[0], right=args[1], at=node.at)


def _zero(args: list[Expr], node: Apply) -> Literal | None:
    number = args[0].type == VOID or is_numeric(args[0].type) if len(args) == 1 else False
    return Literal(INT, 0, at=node.at) if number else None


def _null_if_zero(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    zero = _zero(args, node)
    if zero is None:
        return None
    value = args[0]
    if value.type == VOID:
        return value
    equal = bind_binary(binder=binder, name="=", left=value, right=zero, at=node.at)
    nothing = Literal(value.type, None, at=node.at)
    return CaseWhen(value.type, ((equal, nothing),), value, at=node.at)


def _zero_if_null(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    zero = _zero(args, node)
    if zero is None:
        return None
    return binder.call("coalesce", tuple(binder.common([args[0], zero], name, node.at)), node.at)


def _pmod(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """Both operands have their common type. A STRING is a number, as for %."""
    if len(args) != 2:
        return None
    kind = wider(args[0].type, args[1].type)
    if kind is None or not (is_numeric(kind) or kind == VOID):
        return None
    both = binder.common(args, name, node.at) if kind != VOID else [binder.coerce(a, DOUBLE) for a in args]
    return binder.call(name, tuple(both), node.at)


def _bround(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """Whole numbers stay as they are when they are rounded to digits after the point."""
    if len(args) == 2 and isinstance(args[0].type, Decimal):
        binder.unsupported("bround of a decimal to a number of digits", "Use round, or cast it to DOUBLE.", node.at)
    if len(args) != 2 or args[0].type not in INTEGRAL:
        return None
    digits = args[1].value if isinstance(args[1], Literal) else None
    if not isinstance(digits, int) or digits < 0:
        binder.unsupported("bround of a whole number to digits before the point", "Cast it to DOUBLE.", node.at)
    return binder.call("bround", (args[0],), node.at)


def _to_char(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """to_char of a time is date_format."""
    if len(args) == 2 and args[0].type in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
        return binder.call("date_format", (binder.coerce(args[0], TIMESTAMP), args[1]), node.at)
    if len(args) == 2 and args[0].type == VOID:
        binder.mismatch(f"{name} of NULL without a type", "Write CAST(NULL AS ...) with the type.", node.at)
    if len(args) == 2 and is_numeric(args[0].type):
        binder.unsupported(f"{name} of a number", "Use format_number or format_string.", node.at)
    return None


def _to_number(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """The format is a literal and says how many digits the result has."""
    if len(args) != 2:
        return None
    written = args[1].value if isinstance(args[1], Literal) and args[1].type == STRING else None
    form = None if written is None else number_format(written)
    if form is None:
        binder.unsupported(
            f"{name} with this format", "Write a literal such as '999,999.99', 'S99.9' or '$9,990'.", args[1].at
        )
    call = binder.call(name, (binder.coerce(args[0], STRING), args[1]), node.at)
    return call if isinstance(call, Literal) else Call(form.type, name, call.children, at=node.at)


def _unix_now(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """unix_timestamp() is the clock of the epoch, in seconds."""
    return binder.call(name, (binder.call("current_timestamp", (), node.at),), node.at) if not args else None


def _decode(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """decode(value, search, result, ..., default): a CASE in which NULL equals NULL."""
    if len(args) < 3:
        return None
    pairs = range(1, len(args) - 1, 2)
    conditions = [bind_binary(binder=binder, name="<=>", left=args[0], right=args[i], at=node.at) for i in pairs]
    default = [args[-1]] if len(args) % 2 == 0 else []
    values = binder.common([*(args[i + 1] for i in pairs), *default], name.upper(), node.at)
    branches = tuple(zip(conditions, values, strict=False))
    return CaseWhen(values[0].type, branches, values[-1] if default else None, at=node.at)


def _concat_ws(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """The elements of an array count as arguments: they are joined first. Without an element that is not NULL, the
    array is NULL, which concat_ws skips."""
    if not any(isinstance(arg.type, Array) for arg in args[1:]):
        return None
    separator = binder.coerce(args[0], STRING)

    def joined(arg: Expr) -> Expr:
        if isinstance(arg.type, Map | Struct):
            binder.mismatch(f"{name} does not take {arg.type}", "Use to_json, or name its parts.", arg.at)
        if not isinstance(arg.type, Array):
            return arg
        arg = binder.coerce(arg, Array(STRING))
        count = binder.call("size", (binder.call("array_compact", (arg,), node.at),), node.at)
        empty = bind_binary(binder=binder, name="=", left=count, right=Literal(INT, 0, at=node.at), at=node.at)
        text = binder.call("array_join", (arg, separator), node.at)
        return CaseWhen(STRING, ((empty, Literal(STRING, None, at=node.at)),), text, at=node.at)

    return binder.call(name, (separator, *(binder.coerce(joined(arg), STRING) for arg in args[1:])), node.at)


def _hmac(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """Refused if an operand may fail: beside one that is NULL, Spark sometimes fails and sometimes returns NULL."""
    if any(throws(arg) for arg in args):
        binder.unsupported("hmac of operands that may fail", "Use TRY_CAST and try_ functions inside it.", node.at)
    return None


def _whole_attempt(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """Refused if an operand may fail: Spark turns that into NULL, too."""
    if any(throws(arg) for arg in args):
        binder.unsupported(f"{name} of operands that may fail", "Use TRY_CAST and try_ functions inside.", node.at)
    return None


def _with_pattern(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """Refuses a date pattern with a letter that Spark does not have: it would fail on every row."""
    pattern = args[1].value if len(args) == 2 and isinstance(args[1], Literal) and args[1].type == STRING else None
    letter = None if pattern is None else unknown_letter(pattern, reading=name not in _WRITERS)
    if letter is not None:
        raise BadLiteral(
            f"Spark's date patterns have no letter '{letter}'" + (" for reading" if name not in _WRITERS else ""),
            advice="Write y for the year, M for the month and d for its day, as in 'yyyy-MM-dd'.",
            span=binder.span(args[1].at),
            fails_always=True,
        )
    return _unix_now(binder, name, args, node) if name == "unix_timestamp" else None


_WRITERS = ("date_format", "from_unixtime")
_HANDLERS: dict[str, CallBinder] = {
    "try_to_binary": _whole_attempt,
    "hmac": _hmac,
    **dict.fromkeys(
        (
            *_WRITERS,
            "to_timestamp",
            "to_timestamp_ltz",
            "to_timestamp_ntz",
            "to_date",
            "to_unix_timestamp",
            "unix_timestamp",
        ),
        _with_pattern,
    ),
    "to_number": _to_number,
    "try_to_number": _to_number,
    "decode": _decode,
    "concat_ws": _concat_ws,
    **dict.fromkeys(TRIED, _tried),
    **dict.fromkeys(MAKERS, bind_maker),
    "time_bucket": bind_time_bucket,
    **dict.fromkeys(CALENDAR_MAKERS, refuse_calendar_interval),
    "equal_null": _equal_null,
    "nullifzero": _null_if_zero,
    "zeroifnull": _zero_if_null,
    "pmod": _pmod,
    "bround": _bround,
    "to_char": _to_char,
    "to_varchar": _to_char,
    "from_json": bind_from_json,
    "schema_of_json": bind_schema_of_json,
}
DERIVED = frozenset(_HANDLERS)
