"""Functions on strings. Positions and lengths count characters (code points), as in Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.exec.kernels.strings import lowered
from headrace.model.schema import BIGINT, BOOLEAN, INT, STRING, DataType, Decimal
from headrace.sql.functions.overload import Overload, literal_int
from headrace.sql.functions.regex import like_is_valid
from headrace.sql.functions.regex_functions import quoted, unquoted
from headrace.sql.plan.expr import Expr, Literal

_S = "STRING"
_REPEATED = 200  # characters of SQL


def _count(number: str) -> str:
    """A count. A negative one becomes zero, NULL stays NULL."""
    if literal_int(number) is not None:
        return str(max(0, literal_int(number) or 0))
    return f"(CASE WHEN {number} < 0 THEN 0 ELSE {number} END)"


def _substring(text: str, start: str, length: str) -> str:
    """Spark's substring. A negative start counts from the end. A start of zero is the first character."""
    first_literal, length_literal = literal_int(start), literal_int(length)
    if first_literal is not None and length_literal is not None and first_literal >= 0 and length_literal >= 0:
        return f"substring({text}, {max(1, first_literal)}, {length_literal})"
    first = (
        f"(CASE WHEN {start} > 0 THEN {start} - 1::BIGINT WHEN {start} < 0 THEN length({text}) + {start} ELSE 0 END)"
    )
    until = f"least({first} + {length}, 2147483647)"
    clipped = _count(first)
    return (
        f"CASE WHEN {text} IS NULL OR {start} IS NULL OR {length} IS NULL THEN NULL "
        f"WHEN {until} <= {clipped} THEN '' ELSE substring({text}, {clipped} + 1, {until} - {clipped}) END"
    )


def _cased(function: str, text: str) -> str:
    """DuckDB knows the letters of ASCII and is twenty times as fast. A long argument is not repeated."""
    if len(text) > _REPEATED:
        return f"hr_{function}({text})"
    return f"CASE WHEN strlen({text}) > length({text}) THEN hr_{function}({text}) ELSE {function}({text}) END"


def _pad(function: str, text: str, width: str, fill: str) -> str:
    """Padding with an empty text only truncates."""
    if fill == "' '":
        return f"{function}({text}, {_count(width)}, ' ')"
    return (
        f"CASE WHEN {fill} = '' THEN left({text}, {_count(width)}) ELSE {function}({text}, {_count(width)}, {fill}) END"
    )


def _locate(part: str, text: str, start: str) -> str:
    """An empty part is found at 1, whatever the start is above zero. Without a start the result is 0, not NULL."""
    after = f"strpos(substring({text}, {start}), {part})"
    return (
        f"CASE WHEN {start} IS NULL THEN 0 WHEN {part} IS NULL THEN NULL WHEN {text} IS NULL THEN NULL "
        f"WHEN {start} < 1 THEN 0 "
        f"WHEN {part} = '' THEN 1 WHEN {after} = 0 THEN 0 ELSE CAST({after} + {start} - 1 AS INTEGER) END"
    )


def _overlay(text: str, new: str, start: str, length: str) -> str:
    """`length` characters of `text` from `start` on give way to `new`: as many as `new` has, if it is negative."""
    kept = f"(CASE WHEN {start} < 1 THEN 0 ELSE {start} - 1::BIGINT END)"
    gone = f"(CASE WHEN {length} < 0 THEN length({new}) ELSE {length} END)"
    return f"({_substring(text, '1', kept)} || {new} || {_substring(text, f'({start} + {gone})', '2147483647')})"


def _borderless(args: Sequence[Expr]) -> str | None:
    """A delimiter like 'aa' overlaps itself. Spark searches backwards for a negative count, and cuts elsewhere."""
    mark = _literal(args[1])
    if mark is not None and any(mark.startswith(mark[i:]) for i in range(1, len(mark))):
        return "a delimiter that overlaps itself"
    return None


def _substring_index(text: str, mark: str, count: str) -> str:
    parts = f"string_split({text}, {mark})"
    if mark != "''" and (literal_int(count) or 0) > 0:
        return f"array_to_string({parts}[:{count}], {mark})"
    return (
        f"CASE WHEN {text} IS NULL OR {mark} IS NULL OR {count} IS NULL THEN NULL "
        f"WHEN {mark} = '' OR {count} = 0 THEN '' "
        f"WHEN {count} > 0 THEN array_to_string({parts}[:{count}], {mark}) "
        f"WHEN len({parts}) <= -({count}::BIGINT) THEN {text} ELSE array_to_string({parts}[{count}:], {mark}) END"
    )


def _split_part(text: str, mark: str, number: str) -> str:
    whole = f"CASE WHEN {number} IN (1, -1) THEN {text} ELSE '' END"
    return (
        f"CASE WHEN {text} IS NULL OR {mark} IS NULL OR {number} IS NULL THEN NULL "
        f"WHEN {number} = 0 THEN error('INVALID_INDEX_OF_ZERO') WHEN {mark} = '' THEN {whole} "
        f"ELSE split_part({text}, {mark}, {number}) END"
    )


def _levenshtein(left: str, right: str) -> str:
    """DuckDB counts bytes, which is right for ASCII."""
    ascii_only = f"strlen({left}) = length({left}) AND strlen({right}) = length({right})"
    fast = f"CAST(levenshtein({left}, {right}) AS INTEGER)"
    return f"CASE WHEN {ascii_only} THEN {fast} ELSE hr_levenshtein({left}, {right}) END"


def _near(left: str, right: str, most: str) -> str:
    distance = _levenshtein(left, right)
    return f"CASE WHEN {distance} > {most} THEN -1 ELSE {distance} END"


def _check_near(args: Sequence[Expr]) -> str | None:
    return "a threshold that is NULL" if isinstance(args[2], Literal) and args[2].value is None else None


def _elt(args: Sequence[str]) -> str:
    branches = "".join(f" WHEN {args[0]} = {i} THEN {text}" for i, text in enumerate(args[1:], 1))
    return f"CASE WHEN {args[0]} IS NULL THEN NULL{branches} ELSE error('INVALID_ARRAY_INDEX') END"


def _mask(args: Sequence[str]) -> str:
    defaults = ("'X'", "'x'", "'n'", "CAST(NULL AS VARCHAR)")
    return f"hr_mask({', '.join((*args, *defaults[len(args) - 1 :]))})"


def _check_mask(args: Sequence[Expr]) -> str | None:
    given = [a.value for a in args[1:] if isinstance(a, Literal) and a.value is not None]
    return "a replacement that is not one character" if any(len(g) != 1 for g in given) else None


def _literal(argument: Expr) -> str | None:
    value = argument.value if isinstance(argument, Literal) else None
    return value if isinstance(value, str) else None


def _check_like(args: Sequence[Expr]) -> str | None:
    pattern = _literal(args[1])
    escape = _literal(args[2]) if len(args) > 2 else "\\"
    if escape is None or len(escape) != 1:
        return "an escape that is not one character"
    return None if pattern is None or like_is_valid(pattern, escape) else "this pattern"


def _like(text: str, args: Sequence[str], pattern: str | None) -> str:
    escape = args[2] if len(args) > 2 else "'\\'"
    return "CAST(NULL AS BOOLEAN)" if pattern is None else f"({text} LIKE {quoted(pattern)} ESCAPE {escape})"


def _ilike(args: Sequence[str]) -> str:
    """Spark compares the small letters of both sides."""
    pattern = unquoted(args[1])
    return _like(f"hr_lower({args[0]})", args, None if pattern is None else lowered(pattern))


def _check_ilike(args: Sequence[Expr]) -> str | None:
    escape = _literal(args[2]) if len(args) > 2 else None
    return "a letter as escape" if escape is not None and escape.lower() != escape.upper() else _check_like(args)


def _format_number(value: str, kind: DataType, digits: str) -> str:
    count = literal_int(digits)
    if count is None or count < 0:
        return "CAST(NULL AS VARCHAR)"
    if isinstance(kind, Decimal) or kind == BIGINT:
        return f"hr_grouped_decimal(CAST({value} AS VARCHAR), {count})"
    return f"hr_grouped({value}, {count})"


def _check_digits(args: Sequence[Expr]) -> str | None:
    digits = args[1].value if isinstance(args[1], Literal) else None
    return "digits other than 0 to 100" if isinstance(digits, int) and not 0 <= digits <= 100 else None


def _trims() -> Iterator[Overload]:
    # Few texts have blanks at their ends, and looking for them is cheaper than trimming.
    blank = {"ltrim": "starts_with({0}, ' ')", "rtrim": "ends_with({0}, ' ')"}
    blank["trim"] = f"{blank['ltrim']} OR {blank['rtrim']}"
    for name in ("trim", "ltrim", "rtrim"):
        yield Overload(name, (_S,), STRING, f"CASE WHEN {blank[name]} THEN {name}({{0}}, ' ') ELSE {{0}} END")
        yield Overload(name, (_S, _S), STRING, f"CASE WHEN {{0}} = '' THEN {{1}} ELSE {name}({{1}}, {{0}}) END")
    yield Overload("btrim", (_S,), STRING, f"CASE WHEN {blank['trim']} THEN trim({{0}}, ' ') ELSE {{0}} END")
    yield Overload("btrim", (_S, _S), STRING, "CASE WHEN {1} = '' THEN {0} ELSE trim({0}, {1}) END")


def _patterns() -> Iterator[Overload]:
    for params in ((_S, _S), (_S, _S, _S)):
        at = tuple(range(1, len(params)))
        yield Overload(
            "like", params, BOOLEAN, lambda a, k, r: _like(a[0], a, unquoted(a[1])), constant=at, check=_check_like
        )
        yield Overload("ilike", params, BOOLEAN, lambda a, k, r: _ilike(a), constant=at, check=_check_ilike)


def _masks() -> Iterator[Overload]:
    for count in range(1, 6):
        at = tuple(range(1, count))
        yield Overload("mask", (_S,) * count, STRING, lambda a, k, r: _mask(a), constant=at, check=_check_mask)


def _numbers() -> Iterator[Overload]:
    for kind in ("BIGINT", "DOUBLE", "DECIMAL"):
        yield Overload(
            "format_number",
            (kind, "INT"),
            STRING,
            lambda a, k, r: _format_number(a[0], k[0], a[1]),
            constant=(1,),
            check=_check_digits,
            slow=True,
        )


OVERLOADS: tuple[Overload, ...] = (
    Overload("upper", (_S,), STRING, lambda a, k, r: _cased("upper", a[0])),
    Overload("lower", (_S,), STRING, lambda a, k, r: _cased("lower", a[0])),
    Overload("initcap", (_S,), STRING, "hr_initcap({0})"),
    Overload("length", (_S,), INT, "CAST(length({0}) AS INTEGER)"),
    Overload("octet_length", (_S,), INT, "CAST(strlen({0}) AS INTEGER)"),
    Overload("bit_length", (_S,), INT, "CAST(bit_length({0}) AS INTEGER)"),
    *_trims(),
    Overload("reverse", (_S,), STRING, "hr_reverse({0})"),
    Overload("concat", (_S,), STRING, lambda a, k, r: "(" + " || ".join(a) + ")", variadic=True),
    Overload("concat_ws", (_S, _S), STRING, lambda a, k, r: f"concat_ws({', '.join(a)})", variadic=True),
    Overload(
        "replace",
        (_S, _S, _S),
        STRING,
        "CASE WHEN {2} IS NULL THEN NULL WHEN {1} = '' THEN {0} ELSE replace({0}, {1}, {2}) END",
    ),
    Overload("replace", (_S, _S), STRING, "CASE WHEN {1} = '' THEN {0} ELSE replace({0}, {1}, '') END"),
    Overload("translate", (_S, _S, _S), STRING, "translate({0}, {1}, {2})"),
    Overload("startswith", (_S, _S), BOOLEAN, "starts_with({0}, {1})"),
    Overload("endswith", (_S, _S), BOOLEAN, "ends_with({0}, {1})"),
    Overload("contains", (_S, _S), BOOLEAN, "contains({0}, {1})"),
    Overload("instr", (_S, _S), INT, "CAST(strpos({0}, {1}) AS INTEGER)"),
    Overload("locate", (_S, _S), INT, "CAST(strpos({1}, {0}) AS INTEGER)"),
    Overload("locate", (_S, _S, "INT"), INT, lambda a, k, r: _locate(*a)),
    Overload(
        "find_in_set",
        (_S, _S),
        INT,
        "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL "
        "THEN CAST(coalesce(list_position(string_split({1}, ','), {0}), 0) AS INTEGER) END",
    ),
    # They may exceed the size limit, so they must not run on rows that a condition excludes.
    Overload("repeat", (_S, "INT"), STRING, lambda a, k, r: f"repeat({a[0]}, {_count(a[1])})", throws=True),
    Overload("space", ("INT",), STRING, lambda a, k, r: f"repeat(' ', {_count(a[0])})", throws=True),
    Overload("left", (_S, "INT"), STRING, lambda a, k, r: f"left({a[0]}, {_count(a[1])})"),
    Overload("right", (_S, "INT"), STRING, lambda a, k, r: f"right({a[0]}, {_count(a[1])})"),
    Overload("substring", (_S, "INT", "INT"), STRING, lambda a, k, r: _substring(a[0], a[1], a[2])),
    Overload("substring", (_S, "INT"), STRING, lambda a, k, r: _substring(a[0], a[1], "2147483647")),
    Overload("overlay", (_S, _S, "INT"), STRING, lambda a, k, r: _overlay(a[0], a[1], a[2], "-1")),
    Overload("overlay", (_S, _S, "INT", "INT"), STRING, lambda a, k, r: _overlay(*a)),
    Overload(
        "substring_index",
        (_S, _S, "INT"),
        STRING,
        lambda a, k, r: _substring_index(*a),
        constant=(1,),
        check=_borderless,
    ),
    Overload("split_part", (_S, _S, "INT"), STRING, lambda a, k, r: _split_part(*a), throws=True),
    Overload("lpad", (_S, "INT", _S), STRING, lambda a, k, r: _pad("lpad", *a), throws=True),
    Overload("rpad", (_S, "INT", _S), STRING, lambda a, k, r: _pad("rpad", *a), throws=True),
    Overload("lpad", (_S, "INT"), STRING, lambda a, k, r: _pad("lpad", a[0], a[1], "' '"), throws=True),
    Overload("rpad", (_S, "INT"), STRING, lambda a, k, r: _pad("rpad", a[0], a[1], "' '"), throws=True),
    Overload("elt", ("INT", _S), STRING, lambda a, k, r: _elt(a), variadic=True, throws=True),
    *_patterns(),
    Overload("ascii", (_S,), INT, "CASE WHEN {0} = '' THEN 0 ELSE CAST(unicode({0}) AS INTEGER) END"),
    Overload("chr", ("BIGINT",), STRING, "CASE WHEN {0} < 0 THEN '' ELSE chr(CAST({0} & 255 AS INTEGER)) END"),
    Overload("levenshtein", (_S, _S), INT, lambda a, k, r: _levenshtein(*a), slow=True),
    Overload(
        "levenshtein", (_S, _S, "INT"), INT, lambda a, k, r: _near(*a), constant=(2,), check=_check_near, slow=True
    ),
    Overload("soundex", (_S,), STRING, "hr_soundex({0})"),
    Overload("luhn_check", (_S,), BOOLEAN, "hr_luhn({0})"),
    Overload("quote", (_S,), STRING, "('''' || replace({0}, '''', '\\''') || '''')"),
    *_masks(),
    # A STRING is always valid here: what is not UTF-8 is refused when it is decoded.
    Overload("is_valid_utf8", (_S,), BOOLEAN, "CASE WHEN {0} IS NOT NULL THEN TRUE END"),
    Overload("validate_utf8", (_S,), STRING, "{0}"),
    Overload("try_validate_utf8", (_S,), STRING, "{0}"),
    Overload("make_valid_utf8", (_S,), STRING, "{0}"),
    *_numbers(),
)
