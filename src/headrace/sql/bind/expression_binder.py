"""Turns syntax into typed expressions: resolves names, adds Spark's implicit casts, allows only verified functions."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

import duckdb

from headrace.errors import (
    AmbiguousColumn,
    BadLiteral,
    MisplacedAggregate,
    TypeMismatch,
    UnsupportedOnShared,
    WrongArguments,
)
from headrace.model.schema import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    Decimal,
    Struct,
)
from headrace.sql.bind import literals
from headrace.sql.bind.aggregate_calls import bind_aggregate
from headrace.sql.bind.argument_types import check_argument_types
from headrace.sql.bind.calendar_intervals import bind_calendar_sum
from headrace.sql.bind.collection_calls import ELEMENT, bind_collection, bind_subscript
from headrace.sql.bind.derived_calls import bind_derived
from headrace.sql.bind.grouping_sets import bind_grouping
from headrace.sql.bind.interval_calls import cast_interval, cast_to_interval
from headrace.sql.bind.lambda_calls import LAMBDA_FUNCTIONS, bind_lambda_call
from headrace.sql.bind.meanings import Meanings
from headrace.sql.bind.operator_calls import bind_operator
from headrace.sql.bind.overload_choice import bind_overload, refuse_unknown
from headrace.sql.bind.rankings import bind_ranking
from headrace.sql.bind.scope import Scope, field_of
from headrace.sql.functions import ALIASES, FUNCTIONS, find, verified
from headrace.sql.functions.aggregate_functions import AGGREGATE_ALIASES, AGGREGATE_NAMES
from headrace.sql.functions.casts import CASTS, cast_key, render_cast
from headrace.sql.functions.evaluate import evaluate
from headrace.sql.functions.nested_casts import inner_casts, is_nested
from headrace.sql.functions.time_functions import BARE_CLOCKS
from headrace.sql.parse.syntax import (
    Aliased,
    Apply,
    Case,
    CastTo,
    Constant,
    Dot,
    IntervalCast,
    IntervalConstant,
    LambdaFunction,
    Name,
    Node,
    Ranking,
    Star,
    Subscript,
    TextRange,
)
from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.expr import Call, CaseWhen, Cast, Expr, LambdaVariable, Literal
from headrace.sql.plan.types import (
    INTEGRAL,
    INTERVAL_MICROS,
    INTERVAL_MONTHS,
    VOID,
    Interval,
    is_numeric,
    type_class,
    wider,
)

# What Spark takes for functions of the session, if no column has the name.
_SESSION_WORDS = ("current_user", "user", "session_user", "current_time", "localtime")
# Texts of dates and times that are no constants in Spark.
_SPECIAL_TIMES = ("now", "today", "tomorrow", "yesterday", "epoch")
_RANDOM = ("rand", "random", "uuid", "randn")

GENERATORS = frozenset(
    ["explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple"]
)

WindowOf = Callable[[Apply], Expr | None]


def _are_structs(left: DataType, right: DataType) -> bool:
    """True for two structs with as many fields. Spark compares them whatever the names of their fields."""
    return isinstance(left, Struct) and isinstance(right, Struct) and len(left.fields) == len(right.fields)


class ExprBinder:
    """Binds the expressions of one SELECT. Aggregates are allowed only while `aggregates` is true. `window_of` resolves
    calls of `window(...)` and `session_window(...)`."""

    def __init__(self, scope: Scope, ctx: PlanContext, window_of: WindowOf) -> None:
        self.scope, self.ctx, self.window_of = scope, ctx, window_of
        self.span = ctx.span
        self.aggregates = False
        self.place = "here"
        self.variables: dict[str, LambdaVariable] = {}
        self.lambda_depth = 0
        self.grouping_sets = False
        self.earlier: dict[str, Expr | None] = {}  # select items by alias; None if two have it
        self.meanings = Meanings()

    def bind(self, node: Node) -> Expr:
        """The typed expression of `node`."""
        expr = self._bind(node)
        self.meanings.add(node, expr)
        return expr

    def _bind(self, node: Node) -> Expr:
        if isinstance(node, Name):
            span = self.span(node.at)
            variable = self.variables.get(node.parts[0].lower())
            if variable is not None:
                return self.scope.fields(replace(variable, at=node.at), node.parts[1:], span, node.at)
            found = self.scope.find(node, span)
            if found is None and node.parts[0].lower() in BARE_CLOCKS and len(node.parts) == 1:
                return self.call(node.parts[0].lower(), (), node.at)
            if found is None:
                found = self._earlier_item(node)
            if found is None and len(node.parts) == 1 and node.parts[0].lower() in _SESSION_WORDS:
                self.unsupported(node.parts[0], "Write a literal.", node.at)
            if found is None:
                raise self.scope.unknown(node, span)
            return found
        if isinstance(node, Constant):
            return self._constant(node)
        if isinstance(node, Apply):
            return self._apply(node)
        if isinstance(node, Case):
            return self._case(node)
        if isinstance(node, CastTo):
            return self.cast(self.bind(node.input), node.type, node.at, node.attempt)
        if isinstance(node, IntervalCast):
            return cast_to_interval(self, self.bind(node.input), unit=node.unit, at=node.at, attempt=node.attempt)
        if isinstance(node, Aliased) and node.of_star:
            if isinstance(node.value, Name) and node.value.parts[0].lower() in self.variables:
                advice = "Give the variable another name: x.* means the columns of the struct x."
                self.unsupported("* of a struct with the name of a lambda's variable", advice, node.at)
            return self.bind(node.value)
        if isinstance(node, Dot):
            holder = self.bind(node.input)
            if holder.type == VOID:
                self.unsupported("a field of NULL without a type", "Write CAST(NULL AS ...) with the type.", node.at)
            return field_of(holder, node.field, self.span(node.at), node.at)
        if isinstance(node, Subscript):
            return bind_subscript(self, node)
        if isinstance(node, IntervalConstant):
            if node.months and node.micros:
                self.unsupported(
                    "an interval with both months and days", "Add two intervals one after the other.", node.at
                )
            if node.months or node.unit in ("YEAR", "MONTH", "YEAR TO MONTH"):
                return Literal(Interval(INTERVAL_MONTHS.name, node.unit), node.months, at=node.at)
            return Literal(Interval(INTERVAL_MICROS.name, node.unit), node.micros, at=node.at)
        if isinstance(node, Ranking):
            return bind_ranking(self, node)
        if not isinstance(node, Star):
            self.mismatch("a lambda is allowed only in transform, filter and the like", "Write an expression.", node.at)
        self.unsupported("* outside of a select list and count(*)", "Name the columns.", node.at)

    def _earlier_item(self, node: Name) -> Expr | None:
        """The select item before this one that `node` names, or a field of it: a lateral column alias."""
        alias = node.parts[0].lower()
        if alias not in self.earlier:
            return None
        found, span = self.earlier[alias], self.span(node.at)
        if found is None:
            raise AmbiguousColumn(
                f"two select items before this one are named '{node.parts[0]}'",
                advice="Give one of them another name.",
                span=span,
                name=node.parts[0],
            )
        if self.place == "inside another aggregate":
            self.unsupported(
                f"the alias '{node.parts[0]}' of the same select list inside an aggregate",
                "Repeat the expression, or compute it in a subquery.",
                node.at,
            )
        self.meanings.add_alias(node)
        return self.scope.fields(found, node.parts[1:], span, node.at)

    def predicate(self, node: Node, clause: str) -> Expr:
        """Binds a condition. Like Spark, HAVING casts anything to BOOLEAN, and the others only take BOOLEAN."""
        bound = self.bind(node)
        if clause == "HAVING":
            return self.cast(bound, BOOLEAN, node.at, False)
        if bound.type != BOOLEAN:
            self.mismatch(f"{clause} needs a condition, this is {bound.type}", "Compare it with a value.", node.at)
        return self.coerce(bound, BOOLEAN)

    # --- errors -------------------------------------------------------------------------------

    def mismatch(self, message: str, advice: str, at: TextRange) -> NoReturn:
        raise TypeMismatch(message, advice=advice, span=self.span(at))

    def unsupported(self, what: str, advice: str, at: TextRange) -> NoReturn:
        raise UnsupportedOnShared(
            f"{what} cannot run on the shared host",
            advice=advice,
            span=self.span(at),
            expression=self.ctx.text[slice(*at)],
        )

    def require(self, key: str, at: TextRange) -> None:
        """Raises UnsupportedOnShared if `key` is not on the verified list."""
        if key not in verified():
            self.unsupported(key, "It is not on the verified list; see docs/functions.md.", at)

    # --- types --------------------------------------------------------------------------------

    def coerce(self, expr: Expr, target: DataType) -> Expr:
        """`expr` implicitly cast to `target`, as in Spark."""
        if expr.type == target:
            return expr
        if isinstance(expr, Literal):
            folded = self._literal_as(expr, target)
            if folded is not None:
                return folded
        return self.cast(expr, target, expr.at, False)

    def _literal_as(self, expr: Literal, target: DataType) -> Expr | None:
        value, at = expr.value, expr.at
        if expr.type == VOID or value is None:
            return Literal(target, None, at=at)
        try:
            if expr.type == STRING and target == DATE:
                return literals.date(value, at)
            if expr.type == STRING and target in (TIMESTAMP, TIMESTAMP_NTZ):
                return literals.timestamp(value, target, self.ctx.meaning.time_zone, at)
        except ValueError as problem:
            raise BadLiteral(str(problem), advice=f"{target} is needed here.", span=self.span(at)) from None
        if expr.type == STRING and (is_numeric(target) or target == BOOLEAN) and not self._readable(expr, target):
            advice = f"{target} is needed here. Write a literal of it, or cast the other side to STRING."
            raise BadLiteral(f"{value!r} is not a {target}", advice=advice, span=self.span(at), fails_always=True)
        if expr.type in INTEGRAL:
            if target in INTEGRAL and literals.fits(value, target):
                return Literal(target, value, at=at)
            if target in (DOUBLE, FLOAT) and abs(value) < 2**24:
                return Literal(target, float(value), at=at)
            if isinstance(target, Decimal) and len(str(abs(value))) <= target.precision - target.scale:
                return Literal(target, decimal.Decimal(value), at=at)
        if isinstance(expr.type, Decimal) and target == DOUBLE:
            return Literal(DOUBLE, float(value), at=at)
        return None

    def _readable(self, expr: Literal, target: DataType) -> bool:
        """True if a cast of the text would not fail on every row."""
        text = render_cast("'" + expr.value.replace("'", "''") + "'", STRING, target, False)
        try:
            evaluate(f"{text}", self.ctx.meaning.time_zone)
        except duckdb.Error:
            return False
        return True

    def cast(self, expr: Expr, target: DataType, at: TextRange, attempt: bool) -> Expr:
        """An explicit or implicit CAST."""
        if expr.type == target:
            return expr
        if expr.type == VOID:  # raise_error is a call without a type
            return Literal(target, None, at=at) if isinstance(expr, Literal) else Cast(target, expr, attempt, at=at)
        if expr.type in (INTERVAL_MICROS, INTERVAL_MONTHS):
            return cast_interval(self, expr, target=target, at=at, attempt=attempt)
        if (
            isinstance(expr, Literal)
            and not attempt
            and expr.type == STRING
            and target in (DATE, TIMESTAMP, TIMESTAMP_NTZ)
        ):
            folded = self._literal_as(expr, target)
            assert folded is not None
            return folded
        if is_nested(expr.type):
            return self._cast_nested(expr, target, at, attempt)
        if (type_class(expr.type), type_class(target)) not in CASTS:
            advice = "See docs/functions.md for the list of casts."
            self.unsupported(f"a cast from {expr.type} to {target}", advice, at)
        self.require(cast_key(expr.type, target), at)
        return Cast(target, expr, attempt, at=at)

    def _cast_nested(self, expr: Expr, target: DataType, at: TextRange, attempt: bool) -> Expr:
        """A cast of an array, map or struct. The casts of its parts must be on the verified list, too."""
        pairs = inner_casts(expr.type, target)
        for source, wanted in pairs or ():
            self.cast(Literal(source, None, at=at), wanted, at, True)
        if pairs is None:
            self.unsupported(f"a cast from {expr.type} to {target}", "See docs/functions.md for the list of casts.", at)
        self.require(cast_key(expr.type, target), at)
        return Cast(target, expr, attempt, at=at)

    def common(
        self,
        exprs: list[Expr],
        what: str,
        at: TextRange,
        widen: Callable[[DataType, DataType], DataType | None] = wider,
    ) -> list[Expr]:
        """All of `exprs`, cast to their common type."""
        kind = exprs[0].type
        for expr in exprs[1:]:
            met = widen(kind, expr.type)
            if met is None:
                advice = f"Cast one side explicitly, as in CAST(... AS {kind if expr.type == STRING else expr.type})."
                if (isinstance(kind, Decimal) and is_numeric(expr.type)) or _are_structs(kind, expr.type):
                    self.unsupported(f"{what} of {kind} and {expr.type}", advice, at)
                self.mismatch(f"{what} cannot take {kind} and {expr.type}", advice, at)
            kind = met
        if kind == VOID:
            if not all(map(literals.is_untyped_null, exprs)):  # raise_error and assert_true have no type
                self.unsupported(f"{what} of values without a type", "Cast one of them, as in CAST(... AS STRING).", at)
            kind = STRING
        return [self.coerce(e, kind) for e in exprs]

    # --- literals and structure -----------------------------------------------------------------

    def _constant(self, node: Constant) -> Expr:
        if node.kind in ("date", "timestamp", "timestamp_ntz") and node.text.strip().lower() in _SPECIAL_TIMES:
            advice = "Use current_timestamp() and current_date()."
            self.unsupported(f"{node.kind.upper()} '{node.text}'", advice, node.at)
        try:
            return literals.constant(node, self.ctx.meaning.time_zone)
        except ValueError as problem:
            raise BadLiteral(str(problem), advice="Correct the literal.", span=self.span(node.at)) from None

    def _case(self, node: Case) -> Expr:
        conditions = [self.predicate(c, "WHEN") for c, _ in node.branches]
        values = [self.bind(v) for _, v in node.branches]
        if node.otherwise is not None:
            values.append(self.bind(node.otherwise))
        if all(map(literals.is_untyped_null, values)):
            return values[0]
        values = self.common(values, "CASE", node.at)
        branches = tuple(zip(conditions, values, strict=False))
        otherwise = values[-1] if node.otherwise is not None else None
        return CaseWhen(values[0].type, branches, otherwise, at=node.at)

    # --- functions ------------------------------------------------------------------------------

    def _apply(self, node: Apply) -> Expr:
        name = node.name if node.operator else ALIASES.get(node.name, node.name)
        if name == ELEMENT and not node.operator:  # Spark has no function of this name: users write a[i]
            refuse_unknown(self, node)
        if name in ("window", "session_window") and not node.operator:
            found = self.window_of(node)
            if found is None:
                advice = f"Write GROUP BY {node.name}(...) with the same arguments."
                raise MisplacedAggregate(
                    f"{node.name}() must match a window in GROUP BY", advice=advice, span=self.span(node.at)
                )
            return found
        if name in GENERATORS and not node.operator:
            self.unsupported(
                f"the generator {node.name} inside an expression",
                "Make it a select item of its own, or use LATERAL VIEW.",
                node.at,
            )
        if name in ("grouping", "grouping_id") and not node.operator:
            if not self.grouping_sets:
                raise MisplacedAggregate(
                    f"{node.name}() needs GROUPING SETS, ROLLUP or CUBE in GROUP BY",
                    advice="Use it in the select list and in HAVING of such a query.",
                    span=self.span(node.at),
                )
            if self.place == "inside another aggregate":
                raise MisplacedAggregate(
                    f"{node.name}() is not allowed inside an aggregate",
                    advice="Use it in the select list and in HAVING.",
                    span=self.span(node.at),
                )
            return bind_grouping(name, [self.bind(a) for a in node.args], node.at, self.span)
        aggregate = AGGREGATE_ALIASES.get(node.name, node.name)
        if aggregate in AGGREGATE_NAMES and not node.operator:
            return bind_aggregate(self, node, aggregate)
        if node.distinct or node.star or node.where is not None or node.order or node.ignore_nulls:
            if name not in FUNCTIONS:
                refuse_unknown(self, node)
            if node.star:
                self.unsupported("* outside of a select list and count(*)", "Name the columns.", node.at)
            raise WrongArguments(
                f"{node.name} is not an aggregate: it takes no DISTINCT, FILTER, WITHIN GROUP or IGNORE NULLS",
                advice="Remove them.",
                span=self.span(node.at),
            )
        if name in _RANDOM:
            self.unsupported(f"{name}()", "Use a hash of the row's columns.", node.at)
        if name in LAMBDA_FUNCTIONS or any(isinstance(a, LambdaFunction) for a in node.args):
            return bind_lambda_call(self, name, node)
        moved = bind_calendar_sum(self, node)
        if moved is not None:
            return moved
        args = [self.bind(self._unaliased(a, name)) for a in node.args]
        check_argument_types(self, name, args, node)
        special = bind_collection(self, name, args, node)
        if special is None:
            special = bind_derived(self, name, args, node)
        if special is None:
            special = bind_operator(self, name, args, node)
        return special if special is not None else bind_overload(self, name, args, node)

    def _unaliased(self, node: Node, function: str) -> Node:
        """An argument without its alias, which only `struct` takes."""
        if isinstance(node, Aliased) and function != "struct" and not node.of_star:
            self.mismatch(f"{function} does not take AS", "Remove the alias.", node.at)
        return node.value if isinstance(node, Aliased) and not node.of_star else node

    def boolean(self, expr: Expr, operator: str) -> Expr:
        """An operand of a logical operator."""
        if expr.type == STRING:
            self.unsupported(f"{operator.upper()} of a STRING", "Cast it to BOOLEAN, or compare it first.", expr.at)
        if expr.type not in (BOOLEAN, VOID):
            self.mismatch(f"{operator.upper()} needs conditions, this is {expr.type}", "Compare it first.", expr.at)
        return self.coerce(expr, BOOLEAN)

    def call(self, name: str, args: tuple[Expr, ...], at: TextRange) -> Expr:
        """A call on exact types. Raises UnsupportedOnShared if it is not verified."""
        kinds = [a.type for a in args]
        overload = find(name, kinds)
        shown = f"{name}({', '.join(k.ddl for k in kinds)})"
        if overload is None:
            self.unsupported(shown, "See docs/functions.md for the list of functions.", at)
        self.require(overload.key, at)
        for position in overload.constant:
            if position < len(args) and not isinstance(args[position], Literal):
                self.unsupported(
                    f"{name} with a non-constant argument {position + 1}",
                    "Use a literal for this argument.",
                    args[position].at,
                )
        refused = None if overload.check is None else overload.check(args)
        if refused is not None:
            self.unsupported(f"{name} with {refused}", "docs/functions.md says what it takes, under Known limits.", at)
        result = overload.result_type(kinds)
        if result is None:
            self.unsupported(shown, "The exact result may not fit 38 digits; cast to a smaller type.", at)
        return Call(result, name, args, at=at)
