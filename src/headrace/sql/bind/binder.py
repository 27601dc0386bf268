"""Turns queries into logical plans: WITH, UNION ALL, FROM and the names of the output. `select_binder` binds a SELECT,
and the rules in `rules/` rewrite the plan afterwards."""

from __future__ import annotations

from contextlib import suppress

from headrace.base.unknown import unknown
from headrace.errors import (
    DuplicateName,
    HeadraceError,
    TypeMismatch,
    UnknownStream,
    UnsupportedOnShared,
    WrongArguments,
)
from headrace.model.schema import DataType
from headrace.sql.bind.column_names import ColumnNames
from headrace.sql.bind.expression_binder import ExprBinder
from headrace.sql.bind.meanings import Meanings
from headrace.sql.bind.scope import Scope
from headrace.sql.bind.select_binder import SelectBinder
from headrace.sql.bind.windows import WindowReader
from headrace.sql.names import Names
from headrace.sql.parse.syntax import (
    Derived,
    ParsedQuery,
    Relation,
    SelectQuery,
    Table,
    TextRange,
    UnionQuery,
    Windowed,
    WithQuery,
    parts_of,
)
from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.expr import ColumnRef
from headrace.sql.plan.logical import AssignWindow, Named, Plan, Project, StreamScan, Union
from headrace.sql.plan.types import VOID, Hidden, has_hidden, wider

Ctes = dict[str, Plan]


def bind_query(query: ParsedQuery, names: Names, ctx: PlanContext) -> Plan:
    """The logical plan of a query. Raises SqlError with its position."""
    binder = _Binder(names, ctx)
    plan = binder.query(query, {})
    binder.check_outputs(plan, query)
    return plan


def names_in(query: ParsedQuery, names: Names, ctx: PlanContext) -> ColumnNames:
    """The names of the select items of a query of which this host can bind only parts."""
    binder, ctes, meanings = _Binder(names, ctx), dict[str, Plan](), Meanings()
    with suppress(HeadraceError):
        while isinstance(query, WithQuery):
            for name, body in query.ctes:
                ctes[name.lower()] = binder.query(body, ctes)
            query = query.body
        if isinstance(query, SelectQuery):
            _, scope = binder.relation(query.relation, ctes)
            exprs = ExprBinder(scope, ctx, lambda node: None)
            exprs.aggregates, meanings = True, exprs.meanings
            for part in (part for item in query.items for part in parts_of(item.value)):
                if meanings.of(part) is None:
                    with suppress(HeadraceError):
                        exprs.bind(part)
    return ColumnNames(meanings, ctx.meaning.time_zone)


class _Binder:
    """Binds one query. `ctes` has the plan of each name that WITH declares."""

    def __init__(self, names: Names, ctx: PlanContext) -> None:
        self.names, self.ctx, self.span = names, ctx, ctx.span
        self.windows = WindowReader(ctx)
        self.places: dict[str, TextRange] = {}

    def check_outputs(self, plan: Plan, query: ParsedQuery) -> None:
        """Requires distinct output names, and output types that sinks can store."""
        seen: set[str] = set()
        for field in plan.schema:
            if field.name.lower() in seen:
                raise DuplicateName(
                    f"two output columns are named '{field.name}'",
                    advice="Give one of them another name with AS.",
                    span=self.span(self._item_place(query, field.name)),
                    name=field.name,
                )
            seen.add(field.name.lower())
            if has_hidden(field.type):
                advice = "Cast it, as in CAST(NULL AS STRING)."
                if isinstance(field.type, Hidden) and field.type != VOID:
                    advice = "Use timestampdiff(SECOND, start, end), or add the interval to a time."
                raise TypeMismatch(
                    f"the output column '{field.name}' has the type {field.type}, which no sink can store",
                    advice=advice,
                    span=self.span(self._item_place(query, field.name)),
                )

    def _item_place(self, query: ParsedQuery, name: str) -> tuple[int, int]:
        """The position of the last select item named `name`."""
        while isinstance(query, WithQuery):
            query = query.body
        if isinstance(query, SelectQuery):
            return self.places.get(name.lower(), query.items[-1].at)
        return query.at

    def query(self, query: ParsedQuery, ctes: Ctes) -> Plan:
        if isinstance(query, WithQuery):
            inner = dict(ctes)
            for name, body in query.ctes:
                if name.lower() in inner.keys() - ctes.keys():
                    raise DuplicateName(f"WITH declares '{name}' twice", advice="Rename one.", span=self.span(body.at))
                inner[name.lower()] = self.query(body, inner)
            return self.query(query.body, inner)
        if isinstance(query, UnionQuery):
            return self.union(query, ctes)
        plan, scope = self.relation(query.relation, ctes)
        binder = SelectBinder(query, plan, scope, self.ctx)
        bound = binder.bind()
        self.places = binder.places  # the outermost SELECT is the last
        return bound

    def union(self, query: UnionQuery, ctes: Ctes) -> Plan:
        parts = [self.query(part, ctes) for part in query.inputs]
        width = len(parts[0].schema)
        for part, syntax in zip(parts, query.inputs, strict=True):
            if len(part.schema) != width:
                raise TypeMismatch(
                    f"the parts of a UNION ALL have {width} and {len(part.schema)} columns",
                    advice="Select the same number of columns in each.",
                    span=self.span(syntax.at),
                )
        kinds = [f.type for f in parts[0].schema]
        for part in parts[1:]:
            for i, field in enumerate(part.schema):
                met = wider(kinds[i], field.type)
                if met is None:
                    raise TypeMismatch(
                        f"column {i + 1} of the UNION ALL is {kinds[i]} in one part and {field.type} in another",
                        advice="Cast one of them.",
                        span=self.span(query.at),
                    )
                kinds[i] = met
        names = parts[0].schema.names
        return Union(tuple(self._as_types(part, kinds, names) for part in parts), query.at)

    def _as_types(self, plan: Plan, kinds: list[DataType], names: tuple[str, ...]) -> Plan:
        if [f.type for f in plan.schema] == kinds and plan.schema.names == names:
            return plan
        scope = Scope(plan.schema, None, "this query")
        binder = ExprBinder(scope, self.ctx, lambda node: None)
        outputs: list[Named] = []
        for i, name in enumerate(names):
            outputs.append(Named(name, binder.coerce(scope.column(i, (0, 0)), kinds[i])))
        return Project(plan, tuple(outputs))

    def relation(self, relation: Relation, ctes: Ctes) -> tuple[Plan, Scope]:
        if isinstance(relation, Table):
            plan = ctes.get(relation.name.lower())
            if plan is None:
                plan = self.scan(relation)
            plan = self._renamed(plan, relation)
            return plan, Scope(plan.schema, relation.alias or relation.name, f"'{relation.name}'")
        if isinstance(relation, Derived):
            plan = self._renamed(self.query(relation.query, ctes), relation)
            return plan, Scope(plan.schema, relation.alias, f"'{relation.alias}'" if relation.alias else "the subquery")
        return self.window_table(relation, ctes)

    def _renamed(self, plan: Plan, relation: Table | Derived) -> Plan:
        """The relation with the names of its alias, as in `s AS t(a, b)`."""
        if not relation.columns:
            return plan
        if len(relation.columns) != len(plan.schema):
            raise WrongArguments(
                f"'{relation.alias}' names {len(relation.columns)} columns, but there are {len(plan.schema)}",
                advice="Name every column, or leave the list out.",
                span=self.span(relation.at),
            )
        named = zip(relation.columns, plan.schema, strict=True)
        return Project(plan, tuple(Named(n, ColumnRef(f.type, i, f.name)) for i, (n, f) in enumerate(named)))

    def scan(self, table: Table) -> StreamScan:
        stream = self.names.stream(table.name)
        if stream is None:
            known = (*self.names.stream_names(), *self.names.view_names())
            raise unknown(UnknownStream, "stream", table.name, known, span=self.span(table.at))
        return StreamScan(stream)

    def window_table(self, node: Windowed, ctes: Ctes) -> tuple[Plan, Scope]:
        plan, scope = self.relation(node.input, ctes)
        if node.partition_by:
            raise UnsupportedOnShared(
                "PARTITION BY in a window table function cannot run on the shared host",
                advice="Put the partition columns into GROUP BY.",
                span=self.span(node.partition_by[0].at),
            )
        span = self.span(node.time.at)
        column = scope.find(node.time, span)
        if column is None:
            raise scope.unknown(node.time, span)
        window = self.windows.table(node.function, node.arguments, node.at)
        index = column.index if isinstance(column, ColumnRef) else None
        time = self.windows.require_event_time(plan, index, node.time.at)
        assigned = AssignWindow(input=plan, window=window, time=time, name=node.function, flat=True, at=node.at)
        alias = node.alias or (node.input.name if isinstance(node.input, Table) else None)
        return assigned, Scope(assigned.schema, alias, "the windowed stream")
