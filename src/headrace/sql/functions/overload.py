"""Overloads of scalar functions on the shared host: parameter types, result type and DuckDB SQL.

The SQL must return exactly what the function returns in Spark 4 with ANSI mode on. `tests/sql/functions/` compares each
overload with Spark over edge values. Overloads that pass are listed in `verified.txt`, and only those may run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.model.schema import DataType
from headrace.sql.plan.expr import Expr, Literal
from headrace.sql.plan.types import type_class

ResultType = DataType | Callable[[Sequence[DataType]], DataType | None]
ArgumentCheck = Callable[[Sequence[Expr]], str | None]
SqlTemplate = str | Callable[[Sequence[str], Sequence[DataType], DataType], str]


@dataclass(frozen=True, slots=True)
class Overload:
    """A function on given parameter types.

    `params` are type classes, or ANY. The last one repeats when `variadic`. `sql` is a template over {0}, {1}, ... or a
    function of the argument texts, their types and the result type. `throws` marks a function that may fail on some
    input: it must not run on rows that a condition excludes. The arguments at `constant` must be literals. `check`
    returns what about the arguments cannot run, or None. `by_literal` is a simpler SQL that cannot fail, for a last
    argument that is a literal other than NULL, 0 and -1. A `slow` function runs Python code for every row, always or
    for some literals. The arguments at `exact` have their type as written: Spark casts nothing to it implicitly.
    `throws_for` says for which types the function may fail, if not for all, and `slow_for` for which types it is slow.
    """

    name: str
    params: tuple[str, ...]
    result: ResultType
    sql: SqlTemplate
    throws: bool = False
    variadic: bool = False
    constant: tuple[int, ...] = ()
    check: ArgumentCheck | None = None
    by_literal: str | None = None
    slow: bool = False
    exact: tuple[int, ...] = ()
    throws_for: Callable[[Sequence[DataType]], bool] | None = None
    slow_for: Callable[[Sequence[DataType]], bool] | None = None

    def accepts(self, kinds: Sequence[DataType]) -> bool:
        """True if the argument types are exactly the parameter types."""
        if not self.variadic:
            if len(kinds) != len(self.params):
                return False
        elif len(kinds) < len(self.params):
            return False
        return all(self.param(i) in ("ANY", type_class(kind)) for i, kind in enumerate(kinds))

    def param(self, position: int) -> str:
        """The type class of an argument position."""
        return self.params[min(position, len(self.params) - 1)]

    def result_type(self, kinds: Sequence[DataType]) -> DataType | None:
        """The type of the result. None when the argument types are out of range."""
        return self.result if isinstance(self.result, DataType) else self.result(kinds)

    def render(self, args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
        """The DuckDB SQL over the SQL of the arguments."""
        return self.sql.format(*args) if isinstance(self.sql, str) else self.sql(args, kinds, result)

    def simple(self, args: Sequence[Expr]) -> str | None:
        """`by_literal` if it applies to these arguments, else None."""
        last = args[-1] if args else None
        return self.by_literal if isinstance(last, Literal) and last.value not in (None, 0, -1) else None

    def fails(self, args: Sequence[Expr]) -> bool:
        """True if the function itself may fail on some values of these arguments."""
        if self.throws_for is not None:
            return self.throws_for([a.type for a in args])
        return self.throws and self.simple(args) is None

    @property
    def key(self) -> str:
        """The entry in the verified list: `name(TYPE, TYPE)`. A repeating parameter ends in `...`."""
        return f"{self.name}({', '.join(self.params)}{'...' if self.variadic else ''})"


def literal_int(text: str) -> int | None:
    """The value of an argument that is a whole literal, else None."""
    match = re.fullmatch(r"\(?(-?\d+)\)?(?:::\w+)?", text)
    return None if match is None else int(match[1])


def same(position: int) -> Callable[[Sequence[DataType]], DataType]:
    """A result type: the type of the argument at `position`."""
    return lambda kinds: kinds[position]
