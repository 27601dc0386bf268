"""The context that every step of planning gets: session settings, and the text for carets."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import Span
from headrace.model.program import Meaning
from headrace.sql.parse.syntax import TextRange


@dataclass(frozen=True)
class PlanContext:
    """The session settings of the query, the text of its script, and its number there."""

    meaning: Meaning
    text: str = ""
    statement: int | None = None

    def span(self, at: TextRange) -> Span:
        """A range of the text as a span."""
        return Span(self.text, at[0], at[1], self.statement)
