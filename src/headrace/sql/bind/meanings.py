"""Remembers what the nodes of a SELECT mean. The names of output columns depend on it: see `column_names`."""

from __future__ import annotations

from headrace.sql.parse.syntax import Node
from headrace.sql.plan.expr import Expr


class Meanings:
    """The typed expression of each node that was bound. It keeps the nodes, so an id is never that of another one."""

    def __init__(self) -> None:
        self._bound: dict[int, tuple[Node, Expr]] = {}
        self._aliases: dict[int, Node] = {}

    def add(self, node: Node, expr: Expr) -> None:
        """Remembers that `node` means `expr`."""
        self._bound[id(node)] = (node, expr)

    def add_alias(self, node: Node) -> None:
        """Remembers that `node` is the alias of a select item before it."""
        self._aliases[id(node)] = node

    def of(self, node: Node) -> Expr | None:
        """What `node` means. None if it was not bound by itself."""
        found = self._bound.get(id(node))
        return None if found is None else found[1]

    def is_alias(self, node: Node) -> bool:
        """True if `node` is the alias of a select item before it, or a field of one."""
        return id(node) in self._aliases
