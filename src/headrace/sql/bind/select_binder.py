"""Binds one SELECT: the select list, WHERE, the window and the groups, HAVING and DISTINCT."""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import MisplacedAggregate, TypeMismatch, UnsupportedOnShared, WrongArguments
from headrace.sql.bind.column_names import ColumnNames
from headrace.sql.bind.expression_binder import GENERATORS, ExprBinder
from headrace.sql.bind.generator_calls import bind_generator, refuse_several
from headrace.sql.bind.grouping_sets import SET_NUMBER, AboveSets, keys_of_sets, with_set_numbers
from headrace.sql.bind.groups import AboveAggregate, replace_aliases
from headrace.sql.bind.rankings import with_ranks
from headrace.sql.bind.scope import Scope
from headrace.sql.bind.star_arguments import has_star, with_star_arguments
from headrace.sql.bind.struct_star import struct_fields
from headrace.sql.bind.windows import WindowReader
from headrace.sql.parse.syntax import Apply, Constant, Item, Name, Node, SelectQuery, Star, TextRange, parts_of
from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.expr import AggCall, ColumnRef, Expr, RankCall, walk
from headrace.sql.plan.logical import Aggregate, AssignWindow, Filter, Named, Plan, Project


class SelectBinder:
    """Binds one SELECT over its relation: `plan`, whose names `scope` has."""

    def __init__(self, select: SelectQuery, plan: Plan, scope: Scope, ctx: PlanContext) -> None:
        self.select, self.plan, self.scope, self.ctx = select, plan, scope, ctx
        self.windows = WindowReader(ctx)
        self.window_call: Apply | None = None
        for view in select.laterals:
            self.plan = bind_generator(self._binder(), view.call, plan=self.plan, names=view.columns, outer=view.outer)
            self.scope = self.scope.extended(self.plan.schema, view.alias)
        self.exprs = self._binder()
        self.places: dict[str, TextRange] = {}  # of select items that are no stars, by name in small letters

    def _binder(self) -> ExprBinder:
        return ExprBinder(self.scope, self.ctx, self._window_of)

    def _names(self) -> ColumnNames:
        return ColumnNames(self.exprs.meanings, self.ctx.meaning.time_zone)

    def bind(self) -> Plan:
        """The plan of the whole SELECT."""
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
        calls = [part for part in parts_of(item.value) if isinstance(part, Apply) and has_star(part)]
        for call in calls:
            self._check_count(call)
        if calls:
            item = replace(item, value=with_star_arguments(item.value, self._expand))
        expr = self.exprs.bind(item.value)
        if item.alias is not None:
            alias = item.alias.lower()
            self.exprs.earlier[alias] = None if alias in self.exprs.earlier else expr
        name = self._names().of(item.value) if item.alias is None else item.alias
        self.places[name.lower()] = item.at
        return Named(name, expr)

    def _check_count(self, call: Apply) -> None:
        """Like Spark, count takes the star of a table only beside other arguments."""
        star = call.args[0] if len(call.args) == 1 else None
        if call.name != "count" or call.distinct or not isinstance(star, Star) or star.excluded:
            return
        if len(star.qualifier) == 1 and self.scope.of_qualifier(star.qualifier[0]) is not None:
            raise WrongArguments(
                f"count({star.qualifier[0]}.*) is not allowed",
                advice="Write count(*) for all rows, or name columns: count(a, b).",
                span=self.exprs.span(call.at),
                fails_always=True,
            )

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
        made = bind_generator(self.exprs, call, plan=self.plan, names=names, outer=False)
        self.plan = made
        return [
            Named(f.name, ColumnRef(f.type, made.width + i, f.name, at=call.at))
            for i, f in enumerate(made.schema.fields[made.width :])
        ]

    def _expand(self, star: Star) -> list[Named]:
        scope = self.scope
        among = scope.of_qualifier(star.qualifier[0]) if len(star.qualifier) == 1 else None
        if star.qualifier and among is None:
            return struct_fields(self.exprs, star)
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
        windows = self.windows
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
        """The window column, if the call equals the window call in GROUP BY. Raises UnsupportedOnShared in a query
        without groups: Spark computes the window of each row there."""
        if self.select.group_by is None and not self.select.group_all:
            raise UnsupportedOnShared(
                f"{node.name}() outside GROUP BY cannot run on the shared host",
                advice=f"Write GROUP BY {node.name}(...) in the same query.",
                span=self.ctx.span(node.at),
                expression=self.ctx.text[slice(*node.at)],
            )
        if self.window_call is None or not isinstance(self.plan, AssignWindow):
            return None
        if node is not self.window_call:
            window = self.windows.grouping(node.name, node.args, node.at)
            if node.name != self.window_call.name or window != self.plan.window:
                return None
        width = self.plan.width
        return ColumnRef(self.plan.schema[width].type, width, self.plan.schema[width].name, at=node.at)

    # --- aggregates -----------------------------------------------------------------------------

    def _having(self, node: Node, items: list[Item | Named]) -> Expr:
        """Binds HAVING. Aliases of the select list hide input columns, except inside an aggregate."""
        aliases = {i.alias.lower(): i.value for i in items if isinstance(i, Item) and i.alias is not None}
        self.exprs.place = "in HAVING"
        star = next((part for part in parts_of(node) if isinstance(part, Apply) and has_star(part)), None)
        if star is not None:
            raise WrongArguments(
                "a star that stands for columns is not allowed in HAVING",
                advice="Name the columns.",
                span=self.exprs.span(star.at),
                fails_always=True,
            )
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
        return Named(expr.name if isinstance(expr, ColumnRef) else self._names().of(node), expr)

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
            self.windows.fail("the window must be in every grouping set", advice, self.window_call.at)

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
            self.windows.fail(
                "a windowed stream must be grouped by its window", "Add GROUP BY window_start, window_end.", flat.at
            )


def _chain(plan: Plan) -> list[Plan]:
    """Yields the nodes below `plan`, down to the first that is an aggregate or has several inputs."""
    found: list[Plan] = []
    while len(plan.inputs) == 1 and not isinstance(plan, Aggregate):
        plan = plan.inputs[0]
        found.append(plan)
    return found
