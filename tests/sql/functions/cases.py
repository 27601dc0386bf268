"""The SQL that exercises each entry of the verified list."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.sql.functions import FUNCTIONS
from headrace.sql.functions.casts import CASTS
from headrace.sql.functions.overload import Overload
from headrace.sql.functions.time_functions import CLOCKS
from tests.sql.functions import cases_codes, cases_documents, cases_intervals, cases_numbers, cases_texts, cases_times
from tests.sql.functions.cases_nested import is_nested, nested_cases
from tests.sql.functions.edges import DECIMAL_TYPES

_PREFIX = {"not": "NOT ", "negative": "- ", "positive": "+ ", "~": "~"}
_INFIX = ("+", "-", "*", "/", "%", "div", "=", "!=", "<", "<=", ">", ">=", "<=>", "and", "or", "||", "&", "|", "^",
          "like", "ilike", "rlike")  # fmt: skip

# Literals for the arguments that must be literals.
CONSTANTS: dict[str, list[tuple[str, ...]]] = {
    "round": [("0",), ("1",), ("2",), ("12",)],
    **{f"round({k}, INT)": [("-1",), ("-2",), ("-10",), ("-30",)] for k in ("TINYINT", "SMALLINT", "INT", "BIGINT")},
}
CONSTANTS.update(cases_times.CONSTANTS)
CONSTANTS.update(cases_numbers.CONSTANTS)
_INTERVALS = {
    "INTERVAL SECOND": ["INTERVAL 1 DAY", "INTERVAL 90 MINUTES", "INTERVAL 36 HOURS", "INTERVAL 1 MICROSECOND"],
    "INTERVAL MONTH": ["INTERVAL 1 MONTH", "INTERVAL 1 YEAR", "INTERVAL 11 MONTHS"],
}

# Functions on which huge counts would wrap around the calendar or fill the memory.
_SMALL = ("repeat", "space", "lpad", "rpad", "elt", "overlay", "date_add", "date_sub", "timestamp_micros", "element")

# Functions of which every case is written out: their result has no type of its own, or depends on literals.
_CHOSEN = frozenset(
    {"raise_error", "assert_true", "from_json", "to_json", "to_char", "to_varchar", "hmac", "make_dt_interval",
     "make_ym_interval", "interval divided", "interval text", "interval seconds", "time plus interval",
     "time minus time", "time plus make_interval", "time minus make_interval", "time plus try_make_interval",
     "time minus try_make_interval", "interval micros", "interval months", "try interval micros",
     "try interval months", "to_number", "try_to_number"}
)  # fmt: skip

# Last digits may differ: both engines call a mathematics library of their own.
ULPS = {
    "sqrt": 1, "radians": 1, "degrees": 1, "exp": 2, "ln": 2, "log10": 2, "log2": 2, "power": 2, "sin": 2, "cos": 2,
    "tan": 2, "asin": 2, "acos": 2, "atan": 2, "atan2": 2, "cbrt": 2, **cases_numbers.ULPS,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """An expression over columns a, b, ... of the given types that exercises an entry."""

    key: str
    kinds: tuple[str, ...]
    text: str
    ulps: int = 0


# Literal arguments take a shorter way through some functions.
_LITERAL_CASES = (
    ("substring(STRING, INT, INT)", "STRING", "substring(a, {}, {})", (1, 0, 3, -2, 2147483647)),
    ("substring(STRING, INT)", "STRING", "substring(a, {})", (1, 0, 3, -2)),
    ("left(STRING, INT)", "STRING", "left(a, {})", (0, 2, -1)),
    ("right(STRING, INT)", "STRING", "right(a, {})", (0, 2, -1)),
    ("repeat(STRING, INT)", "STRING", "repeat(a, {})", (0, 2, -1)),
    ("%(INT, INT)", "INT", "(a % {})", (3, -1, -7, 0)),
    ("/(DOUBLE, DOUBLE)", "DOUBLE", "(a / {}D)", (3, -1, 0)),
    ("cast(DECIMAL -> DECIMAL)", "DECIMAL(10,2)", "round(a, {})", (0, 1, 2, 3)),
    ("cast(INT -> BIGINT)", "INT", "round(a, {})", (0, 2)),
    ("div(BIGINT, BIGINT)", "BIGINT", "(a DIV {})", (3, -1, 0)),
)


def literal_cases() -> Iterator[Case]:
    """Cases with literals where others have columns."""
    for key, kind, form, values in _LITERAL_CASES:
        for chosen in itertools.product(values, repeat=form.count("{}")):
            yield Case(key, (kind,), form.format(*chosen))


def scalar_cases() -> Iterator[Case]:
    """A case or more for every function overload and every cast."""
    for overloads in FUNCTIONS.values():
        for overload in overloads:
            if not is_nested(overload):
                yield from _overload_cases(overload)
    for source, target in CASTS:
        yield from _cast_cases(source, target)
    yield from literal_cases()
    for key, kinds, interval in cases_times.DIFFERENCES:
        for operator in ("<", ">=", "="):
            yield Case(key, kinds, f"(a - b {operator} {interval})")
    yield from (Case(*case) for case in cases_texts.CASES)
    yield from (Case(*given) for given in cases_numbers.CASES)
    yield from (Case(*given) for given in cases_documents.CASES)
    yield from (Case(*given) for given in cases_codes.CASES)
    yield from (Case(*given) for given in cases_intervals.CASES)
    yield from (Case(*given) for given in nested_cases())


def _overload_cases(overload: Overload) -> Iterator[Case]:
    if "ANY" in overload.params or overload.name in _CHOSEN:
        return  # the cases of its area choose the types
    if not overload.params:
        text = f"{overload.name}()"
        text = f"({text} > DATE '2020-01-01')" if overload.name in CLOCKS else text
        yield Case(overload.key, ("BOOLEAN",), text)
        return
    if "make_timestamp" in overload.name:
        for used, text in cases_times.maker_cases(overload.name, overload.params):
            yield Case(overload.key, used, text)
        return
    params = list(overload.params)
    if overload.variadic and len(params) < 3:
        params += [params[-1]] * (3 - len(params))
    choices: list[tuple[str, ...]]
    if params.count("DECIMAL") > 1:
        choices = [
            ("DECIMAL(10,2)",) * 3,
            ("DECIMAL(10,2)", "DECIMAL(5,1)", "DECIMAL(10,2)"),
            ("DECIMAL(5,1)", "DECIMAL(3,0)", "DECIMAL(5,1)"),
            ("DECIMAL(18,6)", "DECIMAL(3,0)", "DECIMAL(5,1)"),
            ("DECIMAL(38,18)", "DECIMAL(38,18)", "DECIMAL(10,2)"),
            ("DECIMAL(38,0)", "DECIMAL(38,18)", "DECIMAL(18,6)"),
        ]
    elif "DECIMAL" in params:
        choices = [(d,) * 3 for d in DECIMAL_TYPES]
    else:
        choices = [()]
    for choice in choices:
        decimals = iter(choice)
        kinds = [next(decimals) if p == "DECIMAL" else p for p in params]
        if overload.name in _SMALL or (params[0] == "DATE" and overload.name not in cases_times.KINDS):
            kinds = [f"SMALL {k}" if k in ("INT", "BIGINT") else k for k in kinds]
        kinds = [cases_times.KINDS.get(overload.name, {}).get(k, k) for k in kinds]
        for constants in _constants(overload, kinds):
            columns = iter("abcdef")
            texts = [c if c is not None else next(columns) for c in constants]
            used = tuple(k for k, c in zip(kinds, constants, strict=True) if c is None)
            yield Case(overload.key, used, spell(overload.name, texts), ULPS.get(overload.name, 0))


def _constants(overload: Overload, kinds: list[str]) -> Iterator[list[str | None]]:
    intervals = [i for i, k in enumerate(kinds) if k in _INTERVALS]
    if intervals:
        (at,) = intervals
        for text in _INTERVALS[kinds[at]]:
            yield [text if i == at else None for i in range(len(kinds))]
        return
    if not overload.constant:
        yield [None] * len(kinds)
        return
    known = {**CONSTANTS, **cases_texts.CONSTANTS}
    for given in known.get(overload.key) or known[overload.name]:
        filled = dict(zip(overload.constant, given, strict=True))
        yield [filled.get(i) for i in range(len(kinds))]


def _cast_cases(source: str, target: str) -> Iterator[Case]:
    sources = cases_times.CAST_SOURCES.get((source, target)) or (DECIMAL_TYPES if source == "DECIMAL" else (source,))
    targets = ("DECIMAL(10,2)", "DECIMAL(5,1)", "DECIMAL(38,0)") if target == "DECIMAL" else (target,)
    for a, b in itertools.product(sources, targets):
        if a != b:
            yield Case(f"cast({source} -> {target})", (a,), f"CAST(a AS {b})")
    yield Case(f"cast({source} -> {target})", (sources[0],), f"TRY_CAST(a AS {targets[0]})")


def spell(name: str, args: list[str]) -> str:
    """A call as Spark SQL."""
    if name in _PREFIX:
        return f"({_PREFIX[name]}{args[0]})"
    if name in ("like", "ilike") and len(args) == 3:
        return f"({args[0]} {name.upper()} {args[1]} ESCAPE {args[2]})"
    if name in _INFIX and len(args) == 2:
        return f"({args[0]} {name.upper()} {args[1]})"
    if name == "in":
        return f"({args[0]} IN ({', '.join(args[1:])}))"
    if name.startswith("extract "):
        return f"extract({name.removeprefix('extract ')} FROM {args[0]})"
    if name in ("timestampadd", "timestampdiff"):
        return f"{name}({args[0][1:-1]}, {', '.join(args[1:])})"
    if name == "element":
        return f"{args[0]}[{args[1]}]"
    return f"{name}({', '.join(args)})"
