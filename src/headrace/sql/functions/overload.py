"""What a scalar function on the shared host is: its parameter types, its result, and its DuckDB text.

The text must mean in DuckDB exactly what the function means in Spark 4 with ANSI mode on. `tests/sql/functions/` checks
each overload against Spark over edge values; only what passed is in `verified.txt`, and only that may run.
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
    """One entry: a function on given parameter types.

    `params` are type classes, or ANY; the last one repeats when `variadic`. `sql` is a template over {0}, {1}, ... or a
    function of the argument texts, their types and the result type. `throws` says that it may fail on some input, so
    that it is kept away from rows that a condition excludes. `constant` are the arguments that must be literals;
    `check` looks at the arguments and says what about them cannot run, or None.
    `by_literal` is a simpler text, which cannot fail, for a last argument that is a literal other than NULL, 0 and -1.
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

    def accepts(self, kinds: Sequence[DataType]) -> bool:
        """Whether the argument types are exactly the parameters."""
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
        """The type of the result; None when these argument types are out of range after all."""
        return self.result if isinstance(self.result, DataType) else self.result(kinds)

    def render(self, args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
        """The DuckDB text over the argument texts."""
        return self.sql.format(*args) if isinstance(self.sql, str) else self.sql(args, kinds, result)

    def simple(self, args: Sequence[Expr]) -> str | None:
        """`by_literal`, when it applies to these arguments."""
        last = args[-1] if args else None
        return self.by_literal if isinstance(last, Literal) and last.value not in (None, 0, -1) else None

    @property
    def key(self) -> str:
        """How the entry is written in the verified list: `name(TYPE, TYPE)`; a repeating parameter ends in `...`."""
        return f"{self.name}({', '.join(self.params)}{'...' if self.variadic else ''})"


def literal_int(text: str) -> int | None:
    """The value of an argument's text when it is a whole literal."""
    match = re.fullmatch(r"\(?(-?\d+)\)?(?:::\w+)?", text)
    return None if match is None else int(match[1])


def same(position: int) -> Callable[[Sequence[DataType]], DataType]:
    """The result has the type of that argument."""
    return lambda kinds: kinds[position]
