"""Generates docs/functions.md from the verified list."""

from __future__ import annotations

from headrace.sql.functions import ALIASES, FUNCTIONS, verified
from headrace.sql.functions.aggregate_functions import AGGREGATE_ALIASES, AGGREGATES

_INTRO = """# Functions, casts and aggregates on the shared host

Expressions of a pipeline run in DuckDB inside Spark tasks, and must return what Spark 4 returns with ANSI mode on. So
only the functions on this page are allowed. For every entry, `tests/sql/functions/` compares the two engines over edge
values (NULL, NaN, signed zeros, infinities, the limits of every type, empty, long and non-ASCII texts, the changes to
and from summer time). Any other function is refused with `UNSUPPORTED_ON_SHARED`, which points at the expression.

The tests generate this page from `src/headrace/sql/functions/verified.txt` (`HEADRACE_REWRITE=1`).

Known limits:

- TIMESTAMP values are compared from 1950 to 2100, dates from 0001-01-01 to 9999-12-31. Adding to a date beyond this
  range is an error. Spark wraps around.
- Results of mathematical functions (`sin`, `exp`, `power`, ...) may differ from Java's in the last two digits.
- `upper` turns ß into SS. Other letters whose upper case has several letters (ﬁ, ŉ, ...) keep DuckDB's form.
- When the clock goes back one hour, that hour occurs twice. A local time in it is the first one, as in Spark.
- `rlike` takes patterns that match the same texts in Java and RE2. Look-around, back references and flags are refused.
- `date_format` takes `yyyy`, `MM`, `dd`, `HH`, `mm`, `ss` and separators. For DOUBLE, the digits of `round(x, n)` are a
  literal from 0 to 12; for whole numbers and decimals any literal.
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
- DECIMAL results that Spark would round to 38 digits are refused.
"""


def functions_page() -> str:
    """The text of the page."""
    entries = verified()
    casts = sorted(e for e in entries if e.startswith("cast("))
    listed = {"count(*)", *(function.key for function in AGGREGATES.values())}
    aggregates = sorted(listed & entries)
    scalars = {name: [o.key for o in overloads if o.key in entries] for name, overloads in FUNCTIONS.items()}
    lines = [_INTRO, f"The list has {len(entries)} entries.", "", "## Functions and operators", ""]
    lines += ["| name | argument types | aliases |", "|---|---|---|"]
    for name in sorted(scalars):
        if scalars[name]:
            types = "; ".join(key.removeprefix(name)[1:-1] for key in scalars[name])
            others = ", ".join(f"`{a}`" for a, target in sorted(ALIASES.items()) if target == name)
            lines.append(f"| {_code(name)} | {types} | {others} |")
    lines += [
        "",
        "`CASE`, `IF`, `IFNULL`, `NVL`, `NVL2`, `BETWEEN`, `EXTRACT` and `date_part` are translated to these. A time",
        "minus an interval is the time plus the negative interval. `a[i]` and `m[key]` are `element`.",
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
        "`FILTER (WHERE ...)` works with all aggregates. A group keeps at most `max_group_values` values in a list:",
        "see [windows.md](windows.md).",
        "",
    ]
    return "\n".join(lines)


def _code(name: str) -> str:
    return f"`{name}`".replace("|", "\\|")
