"""docs/functions.md, made from the verified list."""

from __future__ import annotations

from headrace.sql.functions import ALIASES, FUNCTIONS, verified
from headrace.sql.functions.aggregate_functions import AGGREGATE_ALIASES, AGGREGATE_NAMES

_INTRO = """# Functions, casts and aggregates on the shared host

An expression of a pipeline runs in DuckDB inside Spark's tasks, and must mean there what it means in Spark 4 with ANSI
mode on. So only what stands here may be used: for every entry `tests/sql/functions/` compares the two engines over edge
values (NULL, NaN, signed zeros, infinities, the limits of every type, empty, long and non-ASCII texts, the changes to
and from summer time). Anything else is refused with `UNSUPPORTED_ON_SHARED`, at the place of the expression.

This page is made from `src/headrace/sql/functions/verified.txt` by the tests (`HEADRACE_REWRITE=1`).

Known limits, stated rather than hidden:

- TIMESTAMP values are compared from 1950 to 2100; dates from 0001-01-01 to 9999-12-31. Adding to a date beyond the
  calendar is an error here; Spark wraps around.
- Results of the mathematics library (`sin`, `exp`, `power`, ...) may differ from Java's in the last two digits.
- `upper` writes ß as SS; other letters whose capital is several letters (ﬁ, ŉ, ...) keep DuckDB's form.
- Of a wall-clock hour that comes twice, the first is meant, as in Spark, where the clock goes back one hour.
- `rlike` takes the patterns that Java and RE2 read alike; look-around, back references and flags are refused.
- `date_format` takes `yyyy`, `MM`, `dd`, `HH`, `mm`, `ss` and what stands between them; `round(x, n)` takes 0 to 12
  digits as a literal, and of whole numbers and decimals any number of them.
- `first`, `last`, `min_by` and `max_by` break ties by the value: results do not depend on how the input was cut.
- DECIMAL results that Spark would round to fit 38 digits are refused.
"""


def functions_page() -> str:
    """The whole page."""
    entries = verified()
    casts = sorted(e for e in entries if e.startswith("cast("))
    aggregates = sorted(e for e in entries if e.partition("(")[0] in {*AGGREGATE_NAMES, "count distinct"})
    scalars = {name: [o.key for o in overloads if o.key in entries] for name, overloads in FUNCTIONS.items()}
    lines = [_INTRO, f"The list has {len(entries)} entries.", "", "## Functions and operators", ""]
    lines += ["| name | argument types | also spelt |", "|---|---|---|"]
    for name in sorted(scalars):
        if scalars[name]:
            types = "; ".join(key.removeprefix(name)[1:-1] for key in scalars[name])
            others = ", ".join(f"`{a}`" for a, target in sorted(ALIASES.items()) if target == name)
            lines.append(f"| {_code(name)} | {types} | {others} |")
    lines += [
        "",
        "`CASE`, `IF`, `IFNULL`, `NVL`, `NVL2`, `BETWEEN`, `EXTRACT` and `date_part` are written with these; a time",
        "minus an interval is the time plus its negative; `a[i]` and `m[key]` are `element`.",
        "",
    ]
    lines += ["## Casts", "", "`TRY_CAST` takes the same pairs.", "", "| from | to |", "|---|---|"]
    by_source: dict[str, list[str]] = {}
    for cast in casts:
        source, _, target = cast.removeprefix("cast(").removesuffix(")").partition(" -> ")
        by_source.setdefault(source, []).append(target)
    lines += [f"| {source} | {', '.join(targets)} |" for source, targets in sorted(by_source.items())]
    lines += ["", "## Aggregates", "", "| name | argument types | also spelt |", "|---|---|---|"]
    by_name: dict[str, list[str]] = {}
    for entry in aggregates:
        name, _, types = entry.partition("(")
        by_name.setdefault(name, []).append(types.removesuffix(")"))
    for name, kinds in sorted(by_name.items()):
        others = ", ".join(f"`{a}`" for a, target in sorted(AGGREGATE_ALIASES.items()) if target == name)
        lines.append(f"| `{name}` | {'; '.join(kinds)} | {others} |")
    lines += ["", "`count_if(x)` and `FILTER (WHERE ...)` work with all of them.", ""]
    return "\n".join(lines)


def _code(name: str) -> str:
    return f"`{name}`".replace("|", "\\|")
