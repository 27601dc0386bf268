"""Resolves names at one point of a query: the columns of its relation, by name and by qualifier."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.base.unknown import unknown
from headrace.errors import AmbiguousColumn, Span, UnknownColumn
from headrace.model.schema import STRING, Array, Map, Schema, Struct
from headrace.sql.parse.syntax import Name, TextRange
from headrace.sql.plan.expr import OF_ALL_STRUCTS, Call, ColumnRef, Expr, FieldOf, Lambda, LambdaVariable, Literal
from headrace.sql.plan.types import function_type


class Scope:
    """The columns of one relation. `qualifier` is its alias or name. Names ignore case."""

    def __init__(
        self, schema: Schema, qualifier: str | None, what: str, views: Mapping[str, range] | None = None
    ) -> None:
        self.schema, self.qualifier, self.what = schema, qualifier, what
        self.views = dict(views or {})
        self.places: dict[str, list[int]] = {}
        for index, field in enumerate(schema.fields):
            self.places.setdefault(field.name.lower(), []).append(index)

    def extended(self, schema: Schema, view: str | None = None) -> Scope:
        """The scope with the columns that `schema` has after the present ones. They are those of `view`, if given."""
        views = dict(self.views)
        if view is not None:
            views[view.lower()] = range(len(self.schema), len(schema))
        return Scope(schema, self.qualifier, self.what, views)

    def of_qualifier(self, qualifier: str) -> range | None:
        """The columns that `qualifier.*` means. None if there is no such qualifier."""
        if qualifier.lower() == (self.qualifier or "").lower():
            return range(min((r.start for r in self.views.values()), default=len(self.schema)))
        return self.views.get(qualifier.lower())

    def column(self, index: int, at: TextRange) -> ColumnRef:
        """Column `index` as an expression."""
        field = self.schema.fields[index]
        return ColumnRef(field.type, index, field.name, at=at)

    def find(self, name: Name, span: Span) -> Expr | None:
        """The expression that `name` refers to, or None. Raises AmbiguousColumn and, for a field, UnknownColumn."""
        parts = name.parts
        if len(parts) > 1 and self.qualifier is not None and parts[0].lower() == self.qualifier.lower():
            found = self._one(parts[1], span, name.at, self.of_qualifier(self.qualifier))
            if found is not None:
                return self.fields(found, parts[2:], span, name.at)
        if len(parts) > 1 and parts[0].lower() in self.views:
            found = self._one(parts[1], span, name.at, self.views[parts[0].lower()])
            if found is not None:
                return self.fields(found, parts[2:], span, name.at)
        found = self._one(parts[0], span, name.at)
        return None if found is None else self.fields(found, parts[1:], span, name.at)

    def _one(self, name: str, span: Span, at: TextRange, among: range | None = None) -> ColumnRef | None:
        indexes = [i for i in self.places.get(name.lower(), []) if among is None or i in among]
        if len(indexes) > 1:
            raise AmbiguousColumn(
                f"'{name}' is the name of {len(indexes)} columns of {self.what}",
                advice="Give the columns different names with AS in the subquery.",
                span=span,
                name=name,
            )
        return self.column(indexes[0], at) if indexes else None

    def fields(self, expr: Expr, parts: tuple[str, ...], span: Span, at: TextRange) -> Expr:
        """The field of a field ... of a struct expression."""
        for part in parts:
            expr = field_of(expr, part, span, at)
        return expr

    def unknown(self, name: Name, span: Span) -> UnknownColumn:
        """The error for a name that does not exist here."""
        text = ".".join(name.parts)
        qualified = len(name.parts) > 1 and self.qualifier and name.parts[0].lower() == self.qualifier.lower()
        return unknown(
            UnknownColumn,
            "column",
            text,
            self.schema.names,
            of=self.what,
            like=name.parts[1] if qualified else name.parts[0],
            span=span,
            stream=self.what,
        )


def field_of(expr: Expr, name: str, span: Span, at: TextRange, variable: str = OF_ALL_STRUCTS) -> Expr:
    """Field `name` of a struct expression, or of all structs in an array; the value of a key. Raises UnknownColumn."""
    if isinstance(expr.type, Array) and isinstance(expr.type.element, Struct):
        element = LambdaVariable(expr.type.element, variable, "element", at=at)
        inner = field_of(element, name, span, at)
        return Call(
            Array(inner.type),
            "transform",
            (expr, Lambda(function_type(inner.type), (variable,), inner, at=at)),
            at=at,
        )
    if isinstance(expr.type, Map) and expr.type.key == STRING:  # `m.key` is `m['key']`
        return Call(expr.type.value, "element", (expr, Literal(STRING, name, at=at)), at=at)
    if not isinstance(expr.type, Struct):
        raise UnknownColumn(
            f"{expr.type} has no field '{name}'",
            advice="Only STRUCT columns have fields, and maps whose keys are STRING.",
            span=span,
            name=name,
        )
    matches = [f for f in expr.type.fields if f.name.lower() == name.lower()]
    if len(matches) > 1:
        raise AmbiguousColumn(f"two fields are named '{name}'", advice="Rename one.", span=span, name=name)
    if not matches:
        names = [f.name for f in expr.type.fields]
        raise unknown(UnknownColumn, "field", name, names, of=str(expr.type), span=span)
    return FieldOf(matches[0].type, expr, matches[0].name, at=at)
