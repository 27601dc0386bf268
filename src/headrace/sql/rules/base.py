"""What a rule gets besides the plan, and how a rule is recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.errors import Span
from headrace.program import Meaning, PipelineProgram
from headrace.sql.plan import Plan
from headrace.sql.syntax import Place


@dataclass(frozen=True)
class PlanContext:
    """The meaning of the SQL, its text for carets, and the programs that already run on the stream, by pipeline."""

    meaning: Meaning
    text: str = ""
    statement: int | None = None
    neighbours: Mapping[str, PipelineProgram] = field(default_factory=dict)

    def span(self, at: Place) -> Span:
        """A place of the text as a span."""
        return Span(self.text, at[0], at[1], self.statement)


LogicalRule = Callable[[Plan, PlanContext], Plan]


@dataclass(frozen=True)
class Effect:
    """What a rule did: the plan after it as text, or None for "no change"."""

    rule: str
    after: str | None
