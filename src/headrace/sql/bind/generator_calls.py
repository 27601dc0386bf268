"""Binds row generators: explode, posexplode, inline, stack and json_tuple become arrays, of which each element makes a
row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.errors import WrongArguments
from headrace.model.schema import INT, STRING, Array, DataType, Map, Struct
from headrace.sql.bind.document_calls import bind_from_json
from headrace.sql.bind.expression_binder import ExprBinder
from headrace.sql.bind.scope import field_of
from headrace.sql.parse.syntax import Apply, TextRange
from headrace.sql.plan.expr import Expr, Lambda, LambdaVariable, Literal
from headrace.sql.plan.logical import Generate, Named, Plan
from headrace.sql.plan.types import VOID, function_type

Lists = list[tuple[str, Expr]]


def bind_generator(binder: ExprBinder, node: Apply, plan: Plan, names: Sequence[str], outer: bool) -> Generate:
    """The generator over `plan`. `names` rename its columns; there may be none. Raises WrongArguments and
    TypeMismatch."""
    bind = _BINDERS.get(node.name.removesuffix("_outer"))
    if bind is None or (node.name == "stack_outer"):
        binder.unsupported(
            f"{node.name} as a generator", "Use explode, posexplode, inline, stack or json_tuple.", node.at
        )
    args = [binder.bind(a) for a in node.args]
    lists = bind(binder, args, node)
    if names and len(names) != len(lists):
        raise WrongArguments(
            f"{node.name} makes {len(lists)} columns, but there are {len(names)} names",
            advice="Name the columns " + ", ".join(name for name, _ in lists) + " in this order, or none.",
            span=binder.span(node.at),
        )
    named = tuple(Named(new, expr) for new, (_, expr) in zip(names or [n for n, _ in lists], lists, strict=True))
    return Generate(plan, named, outer or node.name.endswith("_outer"), node.at)


def _one(binder: ExprBinder, args: list[Expr], node: Apply) -> Expr:
    if len(args) != 1:
        raise WrongArguments(f"{node.name} takes one argument", advice=f"{len(args)} given.", span=binder.span(node.at))
    return args[0]


def _explode(binder: ExprBinder, args: list[Expr], node: Apply) -> Lists:
    subject = _one(binder, args, node)
    if isinstance(subject.type, Map):
        return [(part, binder.call(f"map_{part}s", (subject,), node.at)) for part in ("key", "value")]
    _require_array(binder, subject, node, "an ARRAY or a MAP")
    return [("col", subject)]


def _posexplode(binder: ExprBinder, args: list[Expr], node: Apply) -> Lists:
    lists = _explode(binder, args, node)
    place = LambdaVariable(INT, "CAST(v_place - 1 AS INTEGER)", "place", at=node.at)
    places = Lambda(function_type(INT), ("v_element", "v_place"), place, at=node.at)
    return [("pos", binder.call("transform", (lists[0][1], places), node.at)), *lists]


def _inline(binder: ExprBinder, args: list[Expr], node: Apply) -> Lists:
    subject = _one(binder, args, node)
    inner = _require_array(binder, subject, node, "an ARRAY of STRUCT")
    if not isinstance(inner, Struct):
        binder.mismatch(f"{node.name} needs an ARRAY of STRUCT, this is {subject.type}", "Use explode.", subject.at)
    # Spark makes the whole structs for inline, also if one field is used.
    span = binder.span(node.at)
    return [(f.name, field_of(subject, f.name, span, node.at, variable="v_row")) for f in inner.fields]


def _stack(binder: ExprBinder, args: list[Expr], node: Apply) -> Lists:
    rows = args[0].value if args and isinstance(args[0], Literal) and args[0].type == INT else None
    if rows is None or rows < 1 or len(args) < 2:
        raise WrongArguments(
            "stack takes the number of rows, a literal, and values",
            advice="Write stack(2, a, b, c, d) for two rows of two columns.",
            span=binder.span(node.at),
        )
    values = args[1:]
    width = -(-len(values) // rows)
    lists: Lists = []
    for i in range(width):
        column = values[i::width]
        kind = next((e.type for e in column if e.type != VOID), VOID)
        for value in column:
            if value.type not in (kind, VOID):
                binder.mismatch(f"column {i} of stack is {kind} and {value.type}", "Cast one of them.", value.at)
        if kind == VOID:
            binder.mismatch(f"column {i} of stack has no type", "Write CAST(NULL AS ...) with the type.", node.at)
        padded = [*column, *(Literal(VOID, None, at=node.at) for _ in range(rows - len(column)))]
        lists.append((f"col{i}", binder.call("array", tuple(binder.coerce(e, kind) for e in padded), node.at)))
    return lists


def _json_tuple(binder: ExprBinder, args: list[Expr], node: Apply) -> Lists:
    """One row, with the texts of some fields of a JSON object. `from_json` reads them."""
    names = [a.value for a in args[1:] if isinstance(a, Literal) and a.type == STRING and a.value]
    if not names or len(names) < len(args) - 1:
        raise WrongArguments(
            "json_tuple takes a JSON text and names of fields, which are literals",
            advice="Write json_tuple(text, 'a', 'b').",
            span=binder.span(node.at),
        )
    schema = ", ".join("`" + name.replace("`", "``") + "` STRING" for name in dict.fromkeys(names))
    read = bind_from_json(binder, "from_json", [args[0], Literal(STRING, schema, at=node.at)], node)
    assert read is not None
    fields = [field_of(read, name, binder.span(node.at), node.at) for name in names]
    return [(f"c{i}", binder.call("array", (field,), node.at)) for i, field in enumerate(fields)]


def _require_array(binder: ExprBinder, subject: Expr, node: Apply, what: str) -> DataType:
    if not isinstance(subject.type, Array):
        binder.mismatch(f"{node.name} needs {what}, this is {subject.type}", "Pass such a column.", subject.at)
    return subject.type.element


def refuse_several(binder: ExprBinder, at: TextRange) -> None:
    """Raises UnsupportedOnShared: a select list has one generator at most, as in Spark."""
    binder.unsupported("a second generator in a select list", "Use LATERAL VIEW for each of them.", at)


_BINDERS: dict[str, Callable[[ExprBinder, list[Expr], Apply], Lists]] = {
    "explode": _explode,
    "posexplode": _posexplode,
    "inline": _inline,
    "stack": _stack,
    "json_tuple": _json_tuple,
}
