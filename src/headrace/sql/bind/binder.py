"""Turns queries into logical plans and resolves their names. The rules in `rules/` rewrite the plan afterwards."""

from __future__ import annotations

from headrace.base.unknown import unknown
from headrace.errors import (
    DuplicateName,
    MisplacedAggregate,
    TypeMismatch,
    UnknownStream,
    UnsupportedOnShared,
    WrongArguments,
)
from headrace.model.schema import DataType
from headrace.sql.bind.column_names import column_name
from headrace.sql.bind.expression_binder import GENERATORS, ExprBinder
from headrace.sql.bind.generator_calls import bind_generator, refuse_several
from headrace.sql.bind.grouping_sets import SET_NUMBER, AboveSets, keys_of_sets, with_set_numbers
from headrace.sql.bind.groups import AboveAggregate, replace_aliases
from headrace.sql.bind.rankings import with_ranks
from headrace.sql.bind.scope import Scope
from headrace.sql.bind.struct_star import struct_fields
from headrace.sql.bind.windows import WindowReader
from headrace.sql.names import Names
from headrace.sql.parse.syntax import (
    Apply,
    Constant,
    Derived,
    Item,
    Name,
    Node,
    ParsedQuery,
    Relation,
    SelectQuery,
    Star,
    Table,
    UnionQuery,
    Windowed,
    WithQuery,
    parts_of,
)
from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.expr import AggCall, ColumnRef, Expr, RankCall, walk
from headrace.sql.plan.logical import Aggregate, AssignWindow, Filter, Named, Plan, Project, StreamScan, Union
from headrace.sql.plan.types import VOID, Hidden, has_hidden, wider

Ctes = dict[str, Plan]


def bind_query(query: ParsedQuery, names: Names, ctx: PlanContext) -> Plan:
    """The logical plan of a query. Raises SqlError with its position."""
    binder = _Binder(names, ctx)
    plan = binder.query(query, {})
    binder.check_outputs(plan, query)
    return plan


class _Binder:
    """Binds one query. `ctes` has the plan of each name that WITH declares."""

    def __init__(self, names: Names, ctx: PlanContext) -> None:
        self.names, self.ctx, self.span = names, ctx, ctx.span
        self.windows = WindowReader(ctx)

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
            for item in reversed(query.items):
                if not isinstance(item.value, Star) and (item.alias or column_name(item.value)).lower() == name.lower():
                    return item.at
            return query.items[-1].at
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
        return _SelectBinder(self, query, ctes).bind()

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


class _SelectBinder:
    """Binds one SELECT over its relation."""

    def __init__(self, parent: _Binder, select: SelectQuery, ctes: Ctes) -> None:
        self.parent, self.select = parent, select
        self.plan, self.scope = parent.relation(select.relation, ctes)
        self.window_call: Apply | None = None
        for view in select.laterals:
            self.plan = bind_generator(self._binder(), view.call, self.plan, view.columns, view.outer)
            self.scope = self.scope.extended(self.plan.schema, view.alias)
        self.exprs = self._binder()

    def _binder(self) -> ExprBinder:
        return ExprBinder(self.scope, self.parent.ctx, self._window_of)

    def bind(self) -> Plan:
        select = self.select
        if select.where is not None:
            self.exprs.place = "in WHERE"
            self.plan = Filter(self.plan, self.exprs.predicate(select.where, "WHERE"))
        if select.sets is not None:
            self.plan = with_set_numbers(self.plan, len(select.sets), select.at)
            self.scope = self.scope.extended(self.plan.schema)
        self._assign_window()
        items = self._items()
        self.exprs.aggregates = True
        self.exprs.grouping_sets = select.sets is not None
        self.exprs.place = "here"
        bound = [item if isinstance(item, Named) else self._bound(item) for item in items]
        having = None if select.having is None else self._having(select.having, items)
        exprs = [named.expr for named in bound] + ([] if having is None else [having])
        calls = [e for expr in exprs if not isinstance(expr, ColumnRef) for e in walk(expr) if isinstance(e, AggCall)]
        self.exprs.aggregates = False
        if calls and len(self.plan.schema) > len(self.scope.schema):
            self.exprs.unsupported("an aggregate beside a generator", "Make the rows in LATERAL VIEW.", calls[0].at)
        if select.group_all and not calls and select.having is None:
            self._check_window_keys(bound)
        if select.group_by is None and not calls:
            if select.having is not None:
                raise MisplacedAggregate(
                    "HAVING without GROUP BY or an aggregate",
                    advice="Use WHERE.",
                    span=self.exprs.span(select.having.at),
                )
            return with_ranks(self.plan, tuple(bound)) if select.distinct is None else self._distinct(bound)
        if select.distinct is not None:
            raise UnsupportedOnShared(
                "DISTINCT over groups cannot run on the shared host",
                advice="Remove DISTINCT: groups are distinct when the select list has all their keys.",
                span=self.exprs.span(select.distinct),
            )
        return self._aggregate(bound, having, calls, items)

    def _bound(self, item: Item) -> Named:
        """A select item. Later ones may use its alias."""
        expr = self.exprs.bind(item.value)
        if item.alias is not None:
            alias = item.alias.lower()
            self.exprs.earlier[alias] = None if alias in self.exprs.earlier else expr
        return Named(_name(item), expr)

    # --- select list ----------------------------------------------------------------------------

    def _items(self) -> list[Item | Named]:
        items: list[Item | Named] = []
        for item in self.select.items:
            if isinstance(item.value, Star):
                items.extend(self._expand(item.value))
            elif isinstance(item.value, Apply) and item.value.name in GENERATORS:
                items.extend(self._generated(item, item.value))
            elif item.aliases:
                self.exprs.mismatch("only a generator has several names", "Give it one name with AS.", item.at)
            else:
                items.append(item)
        return items

    def _generated(self, item: Item, call: Apply) -> list[Named]:
        """The columns of a generator in the select list. It makes rows of those that WHERE keeps."""
        if len(self.plan.schema) > len(self.scope.schema):
            refuse_several(self.exprs, call.at)
        if self.select.group_by is not None:
            self.exprs.unsupported("a generator beside GROUP BY", "Use it in LATERAL VIEW or in a subquery.", call.at)
        names = item.aliases or (() if item.alias is None else (item.alias,))
        made = bind_generator(self.exprs, call, self.plan, names, False)
        self.plan = made
        return [
            Named(f.name, ColumnRef(f.type, made.width + i, f.name, at=call.at))
            for i, f in enumerate(made.schema.fields[made.width :])
        ]

    def _expand(self, star: Star) -> list[Item | Named]:
        scope = self.scope
        among = None if star.qualifier is None else scope.of_qualifier(star.qualifier)
        if star.qualifier is not None and among is None:
            return list(struct_fields(self.exprs, star))
        skipped: set[int] = set()
        for excluded in star.excluded:
            span = self.exprs.span(excluded.at)
            found = scope.find(excluded, span)
            if not isinstance(found, ColumnRef):
                raise scope.unknown(excluded, span)
            skipped.add(found.index)
        hidden = self.plan.width if isinstance(self.plan, AssignWindow) and not self.plan.flat else len(scope.schema)
        at = star.at
        return [
            Named(field.name, ColumnRef(field.type, i, field.name, at=at))
            for i, field in enumerate(scope.schema.fields)
            if field.name != SET_NUMBER and i not in skipped and i < hidden and (among is None or i in among)
        ]

    # --- windows --------------------------------------------------------------------------------

    def _assign_window(self) -> None:
        """Adds an AssignWindow below the aggregate for the window call in GROUP BY."""
        grouped = [self._selected(node) for node in self.select.group_by or ()]
        if self.select.group_all:
            grouped = [part for item in self.select.items for part in parts_of(item.value)]
        calls = [
            node
            for node in grouped
            if isinstance(node, Apply) and node.name in ("window", "session_window") and not node.operator
        ]
        if self.select.group_all:
            calls = calls[:1]  # the others must be equal to it
        if not calls:
            return
        windows = self.parent.windows
        call = calls[0]
        if len(calls) > 1:
            windows.fail("a query can have only one window", "Create one pipeline per window.", calls[1].at)
        if isinstance(self.plan, AssignWindow) or any(isinstance(p, AssignWindow) for p in _chain(self.plan)):
            windows.fail("the relation is already windowed", "Group by window_start, window_end.", call.at)
        window = windows.grouping(call.name, call.args, call.at)
        time = self.exprs.bind(call.args[0])
        index = time.index if isinstance(time, ColumnRef) else None
        index = windows.require_event_time(self.plan, index, call.args[0].at)
        self.plan = AssignWindow(input=self.plan, window=window, time=index, name=call.name, flat=False, at=call.at)
        self.window_call = call
        self.scope = self.scope.extended(self.plan.schema)
        self.exprs = self._binder()

    def _selected(self, node: Node) -> Node:
        """The select item that a group key refers to by alias or position, else the key itself."""
        items = self.select.items
        if isinstance(node, Name) and len(node.parts) == 1 and node.parts[0].lower() not in self.scope.places:
            named = [i.value for i in items if i.alias is not None and i.alias.lower() == node.parts[0].lower()]
            return named[0] if named else node
        if isinstance(node, Constant) and node.kind == "number" and node.text.isdigit():
            return items[int(node.text) - 1].value if 1 <= int(node.text) <= len(items) else node
        return node

    def _window_of(self, node: Apply) -> Expr | None:
        """The window column, if the call equals the window call in GROUP BY."""
        if self.window_call is None or not isinstance(self.plan, AssignWindow):
            return None
        if node is not self.window_call:
            window = self.parent.windows.grouping(node.name, node.args, node.at)
            if node.name != self.window_call.name or window != self.plan.window:
                return None
        width = self.plan.width
        return ColumnRef(self.plan.schema[width].type, width, self.plan.schema[width].name, at=node.at)

    # --- aggregates -----------------------------------------------------------------------------

    def _having(self, node: Node, items: list[Item | Named]) -> Expr:
        """Binds HAVING. Aliases of the select list hide input columns, except inside an aggregate."""
        aliases = {i.alias.lower(): i.value for i in items if isinstance(i, Item) and i.alias is not None}
        self.exprs.place = "in HAVING"
        try:
            return self.exprs.predicate(replace_aliases(node, aliases), "HAVING")
        finally:
            self.exprs.place = "here"

    def _keys(self, bound: list[Named], items: list[Item | Named]) -> list[Named]:
        keys: list[Named] = []
        if self.select.group_all:
            return self._all_keys(bound)
        self.exprs.place = "in GROUP BY"
        for node in self.select.group_by or ():
            key = self._key(node, bound, items)
            if any(isinstance(e, AggCall) for e in walk(key.expr)):
                raise MisplacedAggregate(
                    "an aggregate cannot be a group key", advice="Group by columns.", span=self.exprs.span(node.at)
                )
            if key.expr not in [k.expr for k in keys]:
                keys.append(key)
        return keys

    def _key(self, node: Node, bound: list[Named], items: list[Item | Named]) -> Named:
        if isinstance(node, Constant) and node.kind == "number" and node.text.isdigit():
            position = int(node.text)
            if not 1 <= position <= len(bound):
                raise TypeMismatch(
                    f"GROUP BY {position}: the select list has {len(bound)} columns",
                    advice="Positions start at 1.",
                    span=self.exprs.span(node.at),
                )
            return bound[position - 1]
        if isinstance(node, Name) and len(node.parts) == 1 and node.parts[0].lower() not in self.scope.places:
            for item, named in zip(items, bound, strict=True):
                if isinstance(item, Item) and item.alias is not None and item.alias.lower() == node.parts[0].lower():
                    return named
        expr = self.exprs.bind(node)
        return Named(expr.name if isinstance(expr, ColumnRef) else column_name(node), expr)

    def _aggregate(
        self, bound: list[Named], having: Expr | None, calls: list[AggCall], items: list[Item | Named]
    ) -> Plan:
        keys = self._keys(bound, items)
        unique = tuple(dict.fromkeys(calls))
        if self.select.sets is None:
            self._check_window_keys(keys)
            aggregate = Aggregate(self.plan, tuple(keys), unique)
            above = AboveAggregate(aggregate, self.exprs.span)
        else:
            sets = [
                frozenset([k.expr for k in keys].index(self._key(node, bound, items).expr) for node in one)
                for one in self.select.sets
            ]
            common = [key for i, key in enumerate(keys) if all(i in one for one in sets)]
            self._check_window_keys(common)
            self._check_window_in_sets(keys, common)
            number = self.scope.column(self.scope.places[SET_NUMBER][-1], self.select.at)
            aggregate = Aggregate(self.plan, tuple(keys_of_sets(keys, sets, number)), unique)
            above = AboveSets(aggregate, self.exprs.span, [k.expr for k in keys], sets)
        plan: Plan = aggregate
        if having is not None:
            plan = Filter(plan, above.rewrite(having))
        return with_ranks(plan, tuple(Named(named.name, above.rewrite(named.expr)) for named in bound))

    def _all_keys(self, bound: list[Named]) -> list[Named]:
        """GROUP BY ALL: the select items without an aggregate. A part of the window means the window."""
        window = None if self.window_call is None else self._window_of(self.window_call)
        keys: list[Named] = []
        for named in bound:
            if any(isinstance(e, AggCall) for e in walk(named.expr)):
                continue
            key = named
            if window is not None and window in walk(named.expr):
                key = Named(window.name if isinstance(window, ColumnRef) else named.name, window)
            if key.expr not in [k.expr for k in keys]:
                keys.append(key)
        return keys

    def _check_window_in_sets(self, keys: list[Named], common: list[Named]) -> None:
        """Requires that the window of GROUP BY is in every grouping set: a row belongs to the groups of its window."""
        if self.window_call is None:
            return
        window = self._window_of(self.window_call)
        if window not in [k.expr for k in common]:
            advice = "Write it beside them: GROUP BY window(...), ROLLUP(...)."
            self.parent.windows.fail("the window must be in every grouping set", advice, self.window_call.at)

    def _distinct(self, bound: list[Named]) -> Plan:
        """SELECT DISTINCT: an aggregate whose keys are the select list."""
        for rank in (e for named in bound for e in walk(named.expr) if isinstance(e, RankCall)):
            self.exprs.unsupported("a rank beside DISTINCT", "Rank in a subquery.", rank.at)
        self._check_window_keys(bound)
        rows = Aggregate(self.plan, tuple(bound), (), distinct=True)
        return Project(rows, tuple(Named(k.name, ColumnRef(k.expr.type, i, k.name)) for i, k in enumerate(bound)))

    def _check_window_keys(self, keys: list[Named]) -> None:
        """Requires that a windowed relation is grouped by its window: by start and end for the table functions."""
        if not isinstance(self.plan, AssignWindow):
            flat = next((p for p in _chain(self.plan) if isinstance(p, AssignWindow)), None)
        else:
            flat = self.plan
        if flat is None or not flat.flat:
            return
        used = {e.name.lower() for k in keys for e in walk(k.expr) if isinstance(e, ColumnRef)}
        if not {"window_start", "window_end"} <= used:
            self.parent.windows.fail(
                "a windowed stream must be grouped by its window", "Add GROUP BY window_start, window_end.", flat.at
            )


def _name(item: Item) -> str:
    return item.alias if item.alias is not None else column_name(item.value)


def _chain(plan: Plan) -> list[Plan]:
    """Yields the nodes below `plan`, down to the first that is an aggregate or has several inputs."""
    found: list[Plan] = []
    while len(plan.inputs) == 1 and not isinstance(plan, Aggregate):
        plan = plan.inputs[0]
        found.append(plan)
    return found
