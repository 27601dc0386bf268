"""Generates docs/functions.md from the verified list."""

from __future__ import annotations

from headrace.sql.functions import ALIASES, FUNCTIONS, names_slow_kernel, verified
from headrace.sql.functions.aggregate_functions import AGGREGATE_ALIASES, AGGREGATES
from headrace.sql.functions.overload import Overload
from tests.sql.functions.missing import missing_section

_INTRO = """# Functions, casts and aggregates on the shared host

Expressions of a pipeline run in DuckDB inside Spark tasks, and must return what Spark 4 returns with ANSI mode on. So
only the functions on this page are allowed. For every entry, `tests/sql/functions/` compares the two engines over edge
values (NULL, NaN, signed zeros, infinities, the limits of every type, empty, long and non-ASCII texts, the changes to
and from summer time). Any other function is refused with `UNSUPPORTED_ON_SHARED`, which points at the expression.

An entry marked *slow* runs Python code for every row, for some literals only where RE2 or a kernel can do the others.
`EXPLAIN` lists the slow calls of a pipeline.

An argument of another type is cast like in Spark, also to a type that may not hold its value: `from_unixtime(ms /
1000)` takes a DOUBLE, `sqrt(text)` a STRING, `lower(flag)` a BOOLEAN. A value that does not fit fails
(EVALUATION_FAILED). Calls that only Spark takes (`instr` with 3 arguments, `format_number` with a pattern, ...) go to
another host.

The tests generate this page from `src/headrace/sql/functions/verified.txt` (`HEADRACE_REWRITE=1`).

Known limits:

- TIMESTAMP columns are compared from 1950 to 2100, dates from 0001-01-01 to 9999-12-31, texts of times also beyond.
  Adding to a date beyond its range is an error, where Spark wraps around. So is a number of seconds beyond year 294246,
  where Spark takes the last timestamp.
- FLOAT and DOUBLE become STRING and DECIMAL by their shortest digits, as since Java 19. On Java 17, Spark writes other
  digits of some numbers (9.999999999999999E22 for 1.0E23), `to_json` and `format_number` too.
- A DECIMAL of more than 18 digits becomes INT, SMALLINT and TINYINT by way of DOUBLE, as in Spark: 0.999999999999999999
  is 1. With 17 or 18 digits that depends in Spark on how the number was computed. Here the digits after the point
  are cut off.
- A text with a time but no date is not a TIMESTAMP here. Spark would add today's date. `DATE 'today'`,
  `TIMESTAMP 'now'` and the like run on the epoch host, with the clock of the epoch. Texts of decimals have
  ASCII digits.
- A cast of BINARY that is not UTF-8 to STRING is an error. Spark would keep the bytes.
- Date patterns are literals. Writing takes all letters of Spark but `F`, `z`, `g` and `v`, whose meaning and names
  depend on the version of Java: such a pattern runs on the epoch host, with Java's answer. Reading takes `G`, `y`, `M`,
  `L`, `d`, `D`, `a`, `h`, `H`, `k`, `K`, `m`, `s`, `S`, `X`, `x`, `Z`, `O`, `VV`, quotes and brackets, each letter
  once. Of the others Spark itself reads `z`, `g` and `v`, on the epoch host, too. `VV` reads the names of regions
  (without EST, MST and HST, as Java 17), `Z`, `UTC`, `UT`, `GMT` and offsets such as +05:30, but not GMT+0 and GMT-0,
  as in Java. A character that no name has must follow, or the end. `to_timestamp_ntz` does not take it.
- Results of mathematical functions (`sin`, `exp`, `power`, ...) may differ from Java's in the last two digits.
- `current_timestamp()`, `now()`, `current_date()` and `localtimestamp()` are the clock of the epoch, which is logged
  with it. They are refused after an aggregate.
- `upper`, `lower` and `initcap` map letters as in Unicode 17, like Spark 4.3.
- When the clock goes back one hour, that hour occurs twice. A local time in it is the first one, as in Spark.
- Regular expressions are literals with Java's meaning. RE2 runs most of them. Look-around, back references, possessive
  quantifiers, `(?m)`, and patterns that match the empty text in `split`, `regexp_replace`, `regexp_count` and
  `regexp_extract_all` are slow. The flags `d`, `u`, `x` and `U`, `\\G`, `\\X`, scripts (`\\p{IsGreek}`) and
  look-behind of variable length are refused. `\\b` knows the letters of ASCII, as in Java 19 and later. Where a pattern
  matches the empty text, Java also finds it in the middle of a character beyond U+FFFF, which turns it into two
  question marks; here the character stays.
- `format_string` takes `%s` of strings, booleans, whole numbers and decimals with up to 6 digits after the point, `%d`,
  `%x` and `%X` of whole numbers, and `%f` of DOUBLE and FLOAT. `encode` and `decode` take Spark's charsets; `decode`
  only those without a mark of the byte order.
- The key of `parse_url` has only letters, digits, `_` and `-`: Spark reads it as a regular expression.
- `hash` and `xxhash64` do not take ARRAY, MAP and INTERVAL. `levenshtein`, `substring_index`, `mask` and
  `format_number` take literals for their last arguments or the delimiter.
- For DOUBLE and FLOAT, the digits of `round(x, n)` are a literal from 0 to 12; for whole numbers any literal, for
  decimals any from 0 on.
- `first` and `last` go by event time. They, `min_by` and `max_by` break ties by the value, so results do not depend on
  how the input is divided. `any_value` is the smallest value.
- `collect_list` and `listagg` have the order of event time, then of the values. `collect_set` is sorted. With
  `WITHIN GROUP`, rows with equal keys go by the value. `mode` is the smallest of the most frequent values.
- Sums are exact before they are checked for overflow. Spark also fails when only an intermediate sum does not fit.
- Variances, `corr`, `covar_*`, `regr_*`, `skewness` and `kurtosis` agree with Spark to eight digits. Spark's own result
  depends on the order of rows in the last digits, and with an infinity it may be infinite or NaN. Here it is NaN.
- `percentile_approx` is exact. `approx_count_distinct` is exact up to 64 values (with the default error), and then has
  the relative error that Spark promises, but not Spark's digits. The error is a literal from 0.0044 to 0.39.
- `percentile_approx` takes decimals of up to 15 digits. NaN is the largest value. In Spark its place depends on how
  rows are divided among partitions.
- `histogram_numeric` keeps all different values of a group and merges the closest until there are as many bins as
  asked for, from 2 to 10,000. With at most as many values as bins it is Spark's. Beyond that Spark's bins depend on the
  order of rows. It does not take decimals.
- Arithmetic of decimals has Spark's types and rounding. It is slow where the exact result may have more than 38 digits:
  these entries are marked *slow if long*. Like in Spark, the sign change rounds to 34 digits. DIV is refused where the
  quotient may not fit BIGINT.
- An expression fails on the rows on which Spark's fails: Spark evaluates operands one by one, and no more after one
  that decides the result, and its optimizer drops operands beside a `NULL` that is written. Random expressions
  (`make fuzz-expressions`) are compared in this, too. These differences are known. Spark evaluates the first operand
  of `nullif`, `nullifzero`, `regexp_substr` and `BETWEEN` before all others of a row, and fails also where nothing
  needs its value. Spark believes that an element of an array without NULLs is never NULL. It is where the index is
  NULL: `a[NULL]` is NULL here, while in Spark it may fail or count as any value (`ascii(array('a')[i])` is 0).
  `isnull` of the `round` of a whole number or DECIMAL that is never NULL is FALSE here without evaluating it.
  Spark moves a constant into the branches of a `CASE` or `nullif` beside it, so `try_mod(nullif(i, -i), 0)` fails there
  where `-i` does. Here it is NULL.
  The remainder of decimals whose quotient has more than 38 digits fails in Spark; here it is computed.
  `array_join` evaluates its replacement first, as in code that Spark compiles. Inside of `from_json`, which Spark
  interprets, Spark evaluates the array first.
  `try_add` and `try_subtract` of a DATE are refused if an operand may fail, because Spark turns its failure into NULL.
  So are `try_to_binary` and `hmac`, and `try_add` and its family of a STRING. And Spark computes constants
  while it plans, and then drops operands beside them as if they were written: where b is 0, `(1 / b) + if(1 = 2, 1,
  NULL)` is NULL, and `1 / b > 0 AND 1 = 2` is false. Here operands are dropped beside a written `NULL`, `TRUE` or
  `FALSE`, beside `nullif` of two equal literals, as in `isnotnull(try_subtract(a, nullif(5, 5)) / b)`, and beside a
  value that is never NULL and compared with itself. Beside other constants they may be evaluated, and fail.
  A constant that fails, such as `CAST('x' AS INT)`, fails Spark while it plans. Here it fails the rows that need it.
- `array_repeat` of an array copies it, while Spark repeats a reference. Where that is computed again for each element,
  as in `transform(xs, x -> array_max(array_repeat(xs, 1000)))`, it takes 1,000 times the memory and fails where that is
  too much.
- `concat(array(1 / i), nullif(array(1), array(1)))` is NULL where i is 0, while Spark fails.
- NULL without a type is taken where Spark gives it a type. A call that would return nothing but such NULLs, or a
  lambda that does (`array_repeat(NULL, 2)`, `transform(xs, x -> NULL)`), runs on another host if it stands inside
  another call; no sink can store it.
- A constant index of an array that always fails is refused, as in `a[2147483647 + 1]`. Spark evaluates it while it
  plans, unless it may be NULL for Spark, and fails even where no row has an array.
- Sums and products of whole numbers have their constants last, as one number, like in Spark: `i + 1 + -1` cannot
  overflow. This reaches into `try_add` and `try_multiply`; the outermost operator decides about all of them.
- A filter does not evaluate its next part after one that is NULL, like Spark's compiled filters.
- The keys of `map` have no -0.0, and `sort_array` keeps the order of 0.0 and -0.0. In Spark both depend on whether it
  compiles the expression.
- `make_timestamp` takes seconds of up to DECIMAL(16,6). The digits of `format_number` are from 0 to 100.
- Arrays are compared over all scalar types of elements, arrays and structs. FLOAT and DOUBLE below the first level are
  refused in `array_distinct`, `array_union`, `array_intersect`, `array_except`, `arrays_overlap` and in keys of maps.
- The fields of a struct have different names. `aggregate` cannot build a longer and longer text or array.
- `from_json` takes no options, no BINARY and no maps whose keys are not STRING; of equal keys of a map it keeps the
  last. `json_tuple` also reads NaN and infinities. `to_json` takes decimals with up to 6 digits after the point, and
  maps whose keys are STRING, BOOLEAN or whole numbers. `schema_of_json` takes a literal.
- `to_char` and `to_varchar` take times and BINARY, not numbers. The digits of `bround` are a literal from 0 to 5.
- An interval is multiplied and divided by whole numbers only. A decimal that is cast to an interval has at most 23
  digits for days, 24 for hours, 26 for minutes, 27 for seconds and 32 for years: Spark rounds longer ones twice. There
  is no cast to INTERVAL without a unit.
- Vectors are computed in DOUBLE, so the last digit of a FLOAT may differ.
- The delimiters of `str_to_map` are literals without the special characters of patterns.
- `array_sort` with a comparator is refused, and so are casts of maps that may make two keys equal.
"""


def is_slow(overload: Overload) -> bool:
    """True if the overload runs Python code for every row, always or for some literals."""
    return overload.slow or (isinstance(overload.sql, str) and names_slow_kernel(overload.sql))


def functions_page() -> str:
    """The text of the page."""
    entries = verified()
    casts = sorted(e for e in entries if e.startswith("cast("))
    listed = {"count(*)", *(function.key for function in AGGREGATES)}
    aggregates = sorted(listed & entries)
    scalars = {name: [o.key for o in overloads if o.key in entries] for name, overloads in FUNCTIONS.items()}
    lines = [_INTRO, f"The list has {len(entries)} entries.", "", "## Functions and operators", ""]
    lines += ["| name | argument types | aliases |", "|---|---|---|"]
    for name in sorted(scalars):
        if scalars[name]:
            types = "; ".join(
                o.key.removeprefix(name)[1:-1]
                + (" (slow)" if is_slow(o) else " (slow if long)" if o.slow_for is not None else "")
                for o in FUNCTIONS[name]
                if o.key in entries
            )
            others = ", ".join(f"`{a}`" for a, target in sorted(ALIASES.items()) if target == name)
            lines.append(f"| {_code(name)} | {types} | {others} |")
    lines += [
        "",
        "`CASE`, `IF`, `IFNULL`, `NVL`, `NVL2`, `BETWEEN`, `EXTRACT` and `date_part` are translated to these. A time",
        "minus an interval is the time plus the negative interval. The difference of two times is an interval: it can",
        "be compared, added, multiplied, divided, cast to STRING, to another unit and to a whole number or decimal of",
        "its last unit (`CAST(t2 - t1 AS BIGINT)` are seconds) and taken apart by EXTRACT, but not be an output",
        "column. Whole numbers, decimals, texts and NULL are cast to intervals, as in",
        "`CAST('1 02:03:04.5' AS INTERVAL DAY TO SECOND)`.",
        "`interval divided`, `interval text`, `interval seconds`, `time minus time` and `time plus interval`",
        "do that; `interval micros`, `interval months`, `try interval micros` and `try interval months` read texts.",
        "`make_interval` and `try_make_interval` are allowed only where they are added to a time or",
        "subtracted from one: `time plus make_interval` and the like. `equal_null`, `nullifzero`,",
        "`zeroifnull`, `schema_of_json` and the generator `json_tuple` are translated, too. So are",
        "`decode(value, search, result, ..., default)`, `concat_ws` of arrays, `unix_timestamp()`, `<<`, `>>`",
        "and `>>>`, and `time_bucket` by less than a day, of a TIMESTAMP_NTZ also by days.",
        "`ceil` and `floor` take no digits.",
        "`a[i]`, `m[key]` and `m.key` are `element`. `extract x` is",
        "`EXTRACT(x FROM ...)` and `date_part('x', ...)`. `dateadd`, `date_add`, `datediff` and `date_diff` with a",
        "unit are `timestampadd` and `timestampdiff`. A type is a function: `int(x)` is `CAST(x AS INT)`. So are",
        "`to_date(x)` and `to_timestamp(x)`; with `try_` they are `TRY_CAST`.",
        "",
    ]
    lines += ["## Casts", "", "`TRY_CAST` supports the same pairs.", "", "| from | to |", "|---|---|"]
    by_source: dict[str, list[str]] = {}
    for cast in casts:
        source, _, target = cast.removeprefix("cast(").removesuffix(")").partition(" -> ")
        by_source.setdefault(source, []).append(target)
    lines += [f"| {source} | {', '.join(targets)} |" for source, targets in sorted(by_source.items())]
    lines += ["", "## Aggregates", "", "| name | argument types | aliases |", "|---|---|---|"]
    by_name: dict[str, list[str]] = {}
    for entry in aggregates:
        name, _, types = entry.partition("(")
        by_name.setdefault(name, []).append(types.removesuffix(")"))
    for name, kinds in sorted(by_name.items()):
        others = ", ".join(f"`{a}`" for a, target in sorted(AGGREGATE_ALIASES.items()) if target == name)
        lines.append(f"| `{name}` | {'; '.join(kinds)} | {others} |")
    lines += [
        "",
        "A name may have a suffix: `distinct` is `sum(DISTINCT x)`, `ignore nulls` is `first(x) IGNORE NULLS`,",
        "`asc` and `desc` are the order of `WITHIN GROUP`. `count_if(x)`, `median(x)` and `count(x, y)` are supported.",
        "`grouping`, `grouping_id`, `row_number`, `rank` and `dense_rank` work as [sql.md](sql.md#grouping-sets) says.",
        "`FILTER (WHERE ...)` works with all aggregates. A group keeps at most `max_group_values` values in a list:",
        "see [windows.md](windows.md).",
        "",
    ]
    lines += missing_section()
    return "\n".join(lines)


def _mark(overload: Overload) -> str:
    return " (slow)" if is_slow(overload) else "" if overload.slow_for is None else " (slow if long)"


def _code(name: str) -> str:
    return f"`{name}`".replace("|", "\\|")
