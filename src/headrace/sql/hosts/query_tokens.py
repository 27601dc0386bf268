"""What the tokens of a query say without a grammar: which streams it reads, which columns it may need, and what no host
can run. It is for Spark SQL that the planner does not parse itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headrace.model.schema import Schema
from headrace.sql.functions import spark_functions
from headrace.sql.functions.aggregate_functions import AGGREGATE_ALIASES, AGGREGATE_NAMES
from headrace.sql.hosts.spark_checker import Blocker
from headrace.sql.parse.dialect import Token

# Words after which a list of tables has ended.
_AFTER_FROM = frozenset(
    ["WHERE", "GROUP", "HAVING", "ORDER", "SORT", "LIMIT", "UNION", "SELECT", "VIEW", "QUALIFY", "|>"]
)
_BEFORE_TABLE = ("FROM", "JOIN", "TABLE")
_SORTS = {"ORDER": "ORDER BY", "SORT": "SORT BY", "LIMIT": "LIMIT", "OFFSET": "OFFSET"}
_KEEPS = {
    "GROUP": "GROUP BY",
    "HAVING": "HAVING",
    "INTERSECT": "INTERSECT",
    "EXCEPT": "EXCEPT",
    "MINUS": "MINUS",
    "QUALIFY": "QUALIFY",
    "PIVOT": "PIVOT",
}
_RANDOM = frozenset(
    ["rand", "random", "randn", "uuid", "monotonically_increasing_id", "spark_partition_id", "shuffle", "randstr",
     "input_file_name", "uniform"]
)  # fmt: skip

# Aggregates of Spark that the rings do not have, beside those that end in _agg.
_AGGREGATES = frozenset(
    ["approx_top_k", "approx_top_k_accumulate", "approx_top_k_combine", "collect_union", "count_min_sketch", "measure",
     "kll_merge_agg_bigint", "kll_merge_agg_double", "kll_merge_agg_float", "kll_sketch_agg_bigint",
     "kll_sketch_agg_double", "kll_sketch_agg_float", "tuple_intersection_agg_double", "tuple_intersection_agg_integer",
     "tuple_sketch_agg_double", "tuple_sketch_agg_integer", "tuple_union_agg_double", "tuple_union_agg_integer",
     "vector_avg", "vector_sum"]
)  # fmt: skip


def names_read(tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens that name a table in FROM or JOIN. Names that WITH declares are among them."""
    depth, listing = 0, set[int]()
    for i, token in enumerate(tokens):
        if token.upper == "(":
            depth += 1
        elif token.upper == ")":
            listing.discard(depth)
            depth -= 1
        elif token.upper == "FROM":
            listing.add(depth)
        elif token.upper in _AFTER_FROM:
            listing.discard(depth)
        elif token.kind in ("word", "quoted") and token.upper != "LATERAL" and i and tokens[i + 1].upper != "(":
            before = _before(tokens, i)
            if before in _BEFORE_TABLE or (before == "," and depth in listing):
                yield token


def _before(tokens: Sequence[Token], i: int) -> str:
    """The word before token `i`, without parentheses that open there: `FROM (sensors)`."""
    while i and tokens[i - 1].upper == "(":
        i -= 1
    return tokens[i - 1].upper if i else ""


def declared_by_with(tokens: Sequence[Token]) -> set[str]:
    """The names that WITH declares, in lower case."""
    return {
        token.text.lower()
        for i, token in enumerate(tokens)
        if token.kind in ("word", "quoted")
        and i
        and tokens[i - 1].upper in ("WITH", ",", "RECURSIVE")
        and [t.upper for t in tokens[i + 1 : i + 3]] == ["AS", "("]
    }


def may_need(tokens: Sequence[Token], schema: Schema) -> tuple[int, ...]:
    """The columns that a query may need, by index: all if it has a star, a NATURAL JOIN, or a pipe, which passes all
    columns on; else those that it names."""
    every = any(t.upper in ("NATURAL", "|>") for t in tokens)
    if every or any(_is_star(tokens, i) for i in range(len(tokens))):
        return tuple(range(len(schema)))
    return named(tokens, schema)


def named(tokens: Sequence[Token], schema: Schema) -> tuple[int, ...]:
    """The columns whose names are in the text, by index."""
    words = {t.text.lower() for t in tokens if t.kind in ("word", "quoted")}
    return tuple(i for i, field in enumerate(schema) if field.name.lower() in words)


def _is_star(tokens: Sequence[Token], i: int) -> bool:
    """True for `*` as a list of columns. `count(*)` needs none, and between values `*` multiplies."""
    if tokens[i].upper != "*":
        return False
    before = tokens[i - 1].upper if i else ""
    after = tokens[i + 1].upper if i + 1 < len(tokens) else ""
    counted = before == "(" and after == ")" and i > 1 and tokens[i - 2].upper == "COUNT"
    return not counted and before in ("SELECT", ",", ".", "(", "DISTINCT", "ALL")


def is_foreign_aggregate(name: str) -> bool:
    """True for an aggregate of Spark that the shared host does not have."""
    here = name in AGGREGATE_NAMES or name in AGGREGATE_ALIASES
    return name in _AGGREGATES or (name.endswith("_agg") and name in spark_functions() and not here)


def refused_everywhere(tokens: Sequence[Token]) -> Blocker | None:
    """A random function anywhere, or a sort, limit or window function of the query itself: no host runs these over the
    rows of a stream."""
    for token, after in _calls(tokens):
        if token.kind == "word" and token.text.lower() in _RANDOM and after == "(":
            name = token.text.lower()
            return Blocker("random", f"{name}()", f"{name}()", (token.start, token.end))
    depth = 0
    for i, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.upper, 0)
        if depth or token.kind != "word" or (i and tokens[i - 1].upper in (".", "AS")):
            continue
        if token.upper == "OVER":
            return Blocker("stateful", "a window function (OVER)", "OVER", (token.start, token.end))
        if token.upper not in _SORTS:
            continue
        following = tokens[i + 1].upper if i + 1 < len(tokens) else ""
        if token.upper not in ("ORDER", "SORT") or following == "BY":
            return Blocker("sort", _SORTS[token.upper], _SORTS[token.upper], (token.start, token.end))
    return None


def blocker_in(tokens: Sequence[Token]) -> Blocker | None:
    """The first part of the query itself, outside parentheses, that cannot run epoch by epoch; also a random function
    anywhere. Subqueries may read static tables, so only Spark can judge them."""
    for token, after in _calls(tokens):
        name = token.text.lower()
        if token.kind == "word" and name in _RANDOM and after == "(":
            return Blocker("random", f"{name}()", f"{name}()", (token.start, token.end))
        if token.kind == "word" and after == "(" and is_foreign_aggregate(name):
            return Blocker("stateful", f"the aggregate {name} of Spark", name, (token.start, token.end))
    depth = 0
    for i, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.upper, 0)
        if depth or token.kind != "word" or (i and tokens[i - 1].upper in (".", "AS")):
            continue
        following = tokens[i + 1].upper if i + 1 < len(tokens) else ""
        at = (token.start, token.end)
        if token.upper in _SORTS and (token.upper not in ("ORDER", "SORT") or following == "BY"):
            return Blocker("sort", _SORTS[token.upper], _SORTS[token.upper], at)
        if (
            token.upper in _KEEPS
            and not (token.upper == "GROUP" and following != "BY")
            and not (token.upper in ("EXCEPT", "PIVOT") and following == "(" and token.upper == "EXCEPT")
        ):
            return Blocker("stateful", _KEEPS[token.upper], _KEEPS[token.upper], at)
        if token.upper == "DISTINCT" and i and tokens[i - 1].upper == "SELECT":
            return Blocker("stateful", "SELECT DISTINCT", "SELECT DISTINCT", at)
        if token.upper == "UNION" and following != "ALL":
            return Blocker("stateful", "UNION without ALL", "UNION", at)
        if token.upper == "OVER":
            return Blocker("stateful", "a window function (OVER)", "OVER", at)
    return None


def _calls(tokens: Sequence[Token]) -> Iterable[tuple[Token, str]]:
    return ((t, tokens[i + 1].upper if i + 1 < len(tokens) else "") for i, t in enumerate(tokens))
