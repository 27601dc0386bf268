"""A query that Spark has analyzed over the rows of one epoch, to be run over the rows of later ones.

The rows are only in one place of the analyzed plan, the common table expression that stands for the staged relation. So
they can be exchanged, and the rest stays as it is: names, types, functions. Spark still optimizes and plans each epoch,
because both depend on the rows.

A query that reads anything else is analyzed in every epoch: static tables may have changed, variables of the session
may have been set, and functions of the user may have been registered again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame

from headrace.model.program import SparkQuery
from headrace.spark.jvm_plans import frame_of, named_relation, scala_seq, seq, with_definitions
from headrace.spark.plan_needs import session_variables, with_parents
from headrace.spark.staged_input import staged_input
from headrace.sql.functions import spark_functions
from headrace.sql.parse.cursor import RESERVED
from headrace.sql.parse.dialect import tokenize

_REFERENCE = "CTERelationRef"
_LEAVES = frozenset([_REFERENCE, "OneRowRelation", "Range"])


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """The analyzed plan of a query. The first of its `definitions` is that of `relation`, and has no rows."""

    relation: str
    plan: Any
    definitions: tuple[Any, ...]

    def over(self, rows: DataFrame) -> DataFrame:
        """The query over rows with the columns of the relation."""
        spark = rows.sparkSession
        first = _defined(self.definitions[0], self.relation, rows)
        return frame_of(spark, with_definitions(spark, self.plan, scala_seq(spark, [first, *self.definitions[1:]])))


def reusable(program: SparkQuery, frame: DataFrame) -> AnalyzedQuery | None:
    """The analyzed plan of `frame`, the query of a program over some rows. None if the query may mean something else in
    a later epoch."""
    if program.clocks or program.tables or not _calls_only_spark(program.sql):
        return None
    analyzed: Any = frame._jdf.queryExecution().analyzed()
    if str(analyzed.nodeName()) != "WithCTE":
        return None
    definitions = seq(analyzed.cteDefs())
    first = definitions[0].child()
    if str(first.nodeName()) != "SubqueryAlias" or str(first.alias()).lower() != program.relation.lower():
        return None
    leaves = _leaves(analyzed.plan()).union(*(_leaves(definition.child()) for definition in definitions[1:]))
    if _REFERENCE in _leaves(first) or leaves - _LEAVES or session_variables(analyzed):
        return None
    nothing = staged_input(frame.sparkSession, program.staged, ())  # the plan must not keep rows of this epoch
    own = _defined(definitions[0], program.relation, nothing)
    return AnalyzedQuery(program.relation, analyzed.plan(), (own, *definitions[1:]))


def _defined(definition: Any, relation: str, rows: DataFrame) -> Any:
    return definition.withNewChildInternal(named_relation(relation, rows))


def _leaves(plan: Any) -> set[str]:
    nodes = (node for _, node in with_parents(plan, subqueries=True))
    return {str(node.nodeName()) for node in nodes if not seq(node.children())}


def _calls_only_spark(sql: str) -> bool:
    """True if every name before a parenthesis is a function of Spark. Others may be functions of the session."""
    tokens = tokenize(sql)
    before = [t for t, after in pairwise(tokens) if after.upper == "("]
    named = [t for t in before if t.kind == "quoted" or (t.kind == "word" and t.upper not in RESERVED)]
    return all(token.text.lower() in spark_functions() for token in named)
