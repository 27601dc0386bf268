"""Generates docs/functions.md from the verified list."""

from __future__ import annotations

from headrace.sql.functions import ALIASES, FUNCTIONS, verified
from headrace.sql.functions.aggregate_functions import AGGREGATE_ALIASES, AGGREGATE_NAMES

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
- `first`, `last`, `min_by` and `max_by` break ties by the value, so results do not depend on how the input is divided.
- DECIMAL results that Spark would round to 38 digits are refused.
- Arrays are compared over all scalar types of elements, arrays and structs. FLOAT and DOUBLE below the first level are
  refused in `array_distinct`, `array_union`, `array_intersect`, `array_except`, `arrays_overlap` and in keys of maps.
- The fields of a struct have different names. `aggregate` cannot build a longer and longer text or array.
- The delimiters of `str_to_map` are literals without the special characters of patterns.
- `array_sort` with a comparator is refused, and so are casts of maps that may make two keys equal.
"""


def functions_page() -> str:
    """The text of the page."""
    entries = verified()
    casts = sorted(e for e in entries if e.startswith("cast("))
    aggregates = sorted(e for e in entries if e.partition("(")[0] in {*AGGREGATE_NAMES, "count distinct"})
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
    lines += ["", "`count_if(x)` is supported, and `FILTER (WHERE ...)` works with all aggregates.", ""]
    return "\n".join(lines)


def _code(name: str) -> str:
    return f"`{name}`".replace("|", "\\|")
