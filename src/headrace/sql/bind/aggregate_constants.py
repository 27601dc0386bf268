"""The parameters of aggregates that must be literals, such as the fractions of `percentile`, and WITHIN GROUP."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from headrace.errors import WrongArguments
from headrace.model.schema import STRING
from headrace.sql.parse.syntax import Apply, Node
from headrace.sql.plan.expr import Literal
from headrace.sql.plan.types import INTEGRAL, VOID, is_numeric

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder

_PERCENTILES = ("percentile", "percentile_approx", "percentile_cont", "percentile_disc", "median")
_MAX_ACCURACY = 2**31 - 1
_LONGEST_SEPARATOR = 1024
# The sketch has 2^precision registers. Its relative error is 1.04 / sqrt(registers).
_FEWEST, _MOST = 4, 16
_DEFAULT_ERROR = 0.05
_FEWEST_BINS, _MOST_BINS = 2, 10_000


@dataclass(frozen=True)
class SplitCall:
    """An aggregate call: the name with its suffix, the arguments that are expressions, and the literal parameters.
    `ordered` says that WITHIN GROUP belongs to it. `wanted` is the number of arguments, if the name does not tell."""

    name: str
    args: tuple[Node, ...]
    constants: tuple[Any, ...] = ()
    ordered: bool = False
    wanted: int = 0


def split_constants(binder: ExprBinder, node: Apply, name: str) -> SplitCall:
    """Separates the literal parameters of a call from its arguments. Raises WrongArguments at one that is wrong."""
    literals = _Literals(binder, node)
    if name in ("first", "last", "any_value"):
        ignore = node.ignore_nulls or literals.flag(1)
        suffix = " ignore nulls" if ignore and name != "any_value" else ""
        return SplitCall(name + suffix, node.args[:1] if len(node.args) == 2 else node.args)
    if name == "mode":
        return _mode(literals, node)
    if name in _PERCENTILES:
        return _percentile(literals, node, name)
    if name == "listagg":
        return _listagg(literals, node)
    if name == "approx_count_distinct":
        error = literals.number(1, default=_DEFAULT_ERROR)
        precision = math.ceil(2 * math.log2(1.106 / error)) if error > 0 else _MOST + 1
        if not _FEWEST <= precision <= _MOST:
            literals.fail("the relative error of approx_count_distinct is from 0.0044 to 0.39", 1)
        return SplitCall(name, node.args[:1] if len(node.args) == 2 else node.args, (precision,))
    if name == "histogram_numeric":
        bins = literals.number(1, default=0)
        if len(node.args) != 2 or not _FEWEST_BINS <= bins <= _MOST_BINS or bins != int(bins):
            at = binder.span(node.args[1].at) if len(node.args) > 1 else literals.span
            raise WrongArguments(
                f"histogram_numeric takes a value and a number of bins from {_FEWEST_BINS} to {_MOST_BINS}",
                advice="Write histogram_numeric(x, 10).",
                span=at,
            )
        return SplitCall(name, node.args[:1], (int(bins),))
    return SplitCall(name, node.args)


def _mode(literals: _Literals, node: Apply) -> SplitCall:
    if node.order and not node.args:
        key, descending = literals.one_key()
        return SplitCall("mode desc" if descending else "mode", (key,), ordered=True)
    literals.flag(1)  # the smallest of the most frequent values is the result in any case
    return SplitCall("mode", node.args[:1] if len(node.args) == 2 else node.args)


def _percentile(literals: _Literals, node: Apply, name: str) -> SplitCall:
    if name == "median":
        return SplitCall("percentile", node.args, (0.5,), wanted=1)
    if name in ("percentile_cont", "percentile_disc"):
        if len(node.args) != 1 or not node.order:
            advice = f"Write {name}(0.5) WITHIN GROUP (ORDER BY x)."
            raise WrongArguments(
                f"{name} takes a fraction, and the values in WITHIN GROUP", advice=advice, span=literals.span
            )
        key, descending = literals.one_key()
        suffix = " desc" if descending else ""
        return SplitCall(name + suffix, (key,), (literals.fractions(0),), ordered=True)
    if not 2 <= len(node.args) <= 3:
        raise WrongArguments(f"{name} takes 2 or 3 arguments", advice=f"{len(node.args)} given.", span=literals.span)
    fractions = literals.fractions(1)
    if name == "percentile":
        return SplitCall(name, (node.args[0], *node.args[2:]), (fractions,), wanted=len(node.args) - 1)
    accuracy = literals.number(2, default=10_000)
    if not 0 < accuracy <= _MAX_ACCURACY:
        literals.fail(f"the accuracy is from 1 to {_MAX_ACCURACY}", 2)
    return SplitCall(name, node.args[:1], (fractions,))


def _listagg(literals: _Literals, node: Apply) -> SplitCall:
    args = node.args[:1] if len(node.args) == 2 else node.args
    separator = literals.text(1)
    if len(separator.encode()) > _LONGEST_SEPARATOR:
        literals.fail(f"the separator has more than {_LONGEST_SEPARATOR} bytes", 1)
    if not node.order:
        return SplitCall("listagg", args, (separator,), wanted=1)
    key, descending = literals.one_key()
    suffix = " desc" if descending else " asc"
    if node.distinct:
        if args and literals.binder.bind(key) != literals.binder.bind(args[0]):
            advice = "Order by the same expression, or leave out DISTINCT."
            raise WrongArguments("listagg(DISTINCT x) can only be ordered by x", advice=advice, span=literals.span)
        return SplitCall("listagg" + suffix, args, (separator,), ordered=True, wanted=1)
    return SplitCall("listagg" + suffix, (*args, key), (separator,), ordered=True, wanted=2)


class _Literals:
    """The literal parameters of one call."""

    def __init__(self, binder: ExprBinder, node: Apply) -> None:
        self.binder, self.node = binder, node
        self.span = binder.span(node.at)

    def fail(self, what: str, position: int) -> NoReturn:
        raise WrongArguments(what, advice="Change this argument.", span=self.binder.span(self.node.args[position].at))

    def one_key(self) -> tuple[Node, bool]:
        """The key of WITHIN GROUP, and whether it is descending."""
        if len(self.node.order) > 1:
            self.binder.unsupported("WITHIN GROUP with several keys", "Order by one key.", self.node.order[1][0].at)
        return self.node.order[0]

    def flag(self, position: int) -> bool:
        """A literal TRUE or FALSE; FALSE if it is missing."""
        if len(self.node.args) <= position:
            return False
        bound = self.binder.bind(self.node.args[position])
        if not isinstance(bound, Literal) or not isinstance(bound.value, bool):
            self.fail(f"argument {position + 1} of {self.node.name} must be TRUE or FALSE", position)
        return bound.value

    def number(self, position: int, default: float) -> float:
        if len(self.node.args) <= position:
            return default
        found = self._number(self.node.args[position])
        if found is None:
            self.fail(f"argument {position + 1} of {self.node.name} must be a literal number", position)
        return found

    def fractions(self, position: int) -> float | tuple[float, ...]:
        """A fraction from 0 to 1, or an array of them."""
        node = self.node.args[position]
        several = isinstance(node, Apply) and node.name == "array" and not node.operator
        nodes = node.args if isinstance(node, Apply) and several else (node,)
        found = [self._number(n) for n in nodes]
        fractions = tuple(f for f in found if f is not None)
        if not found or len(fractions) < len(found) or not all(0 <= f <= 1 for f in fractions):
            self.fail(f"{self.node.name} needs a literal from 0 to 1, or an array of them", position)
        return fractions if several else fractions[0]

    def text(self, position: int) -> str:
        """A literal string; empty if it is missing or NULL."""
        if len(self.node.args) <= position:
            return ""
        bound = self.binder.bind(self.node.args[position])
        if not isinstance(bound, Literal) or bound.type not in (STRING, VOID):
            self.fail(f"argument {position + 1} of {self.node.name} must be a literal string", position)
        return bound.value or ""

    def _number(self, node: Node) -> float | None:
        bound = self.binder.bind(node)
        if not isinstance(bound, Literal) or bound.value is None:
            return None
        if is_numeric(bound.type) or bound.type in INTEGRAL:
            return float(bound.value)
        try:
            return float(bound.value) if bound.type == STRING else None
        except ValueError:
            return None
