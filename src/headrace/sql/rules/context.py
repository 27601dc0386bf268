"""What a rule gets besides the plan, and the walk over physical plans that rules share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.errors import Span
from headrace.model.program import Meaning, PipelineProgram
from headrace.sql.parse.syntax import TextRange
from headrace.sql.plan.logical import Plan
from headrace.sql.plan.physical import Physical


@dataclass(frozen=True)
class PlanContext:
    """The meaning of the SQL, its text for carets, and the programs that already run on the stream, by pipeline."""

    meaning: Meaning
    text: str = ""
    statement: int | None = None
    neighbours: Mapping[str, PipelineProgram] = field(default_factory=dict)

    def span(self, at: TextRange) -> Span:
        """A place of the text as a span."""
        return Span(self.text, at[0], at[1], self.statement)


LogicalRule = Callable[[Plan, PlanContext], Plan]
PhysicalRule = Callable[[Physical, PlanContext], Physical]


def rewrite_physical(root: Physical, change: Callable[[Physical], Physical]) -> Physical:
    """Applies `change` to every operator once, from the bottom up, keeping shared operators shared; the same object
    when nothing changes."""
    done: dict[int, Physical] = {}

    def visit(node: Physical) -> Physical:
        found = done.get(id(node))
        if found is None:
            inputs = tuple(visit(child) for child in node.inputs)
            same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
            found = done[id(node)] = change(node if same else node.with_inputs(inputs))
        return found

    return visit(root)
