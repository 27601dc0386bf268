"""Compares random expressions with Spark: `make fuzz-expressions`.

Every expression is evaluated over rows of edge values, in several time zones. A row's value and a row's failure must be
the same in both engines. Expressions that our planner refuses are counted; refusing is safe.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import HeadraceError, InternalError
from headrace.model.schema import BOOLEAN
from tests.sql.functions.harness import (
    CONSTANT_FOLDING,
    EXCLUDED_RULES,
    FAILED,
    Duck,
    Outcome,
    Spark,
    differences,
    plan_condition,
    plan_expressions,
)
from tests.sql.functions.listed_reasons import ListedReasons
from tests.sql.functions.random_expressions import ZONES, Expression, Generator
from tests.sql.functions.spark_answers import KeptAnswers, RememberingSpark

ROUND = 200  # expressions over the same rows


@dataclass
class Findings:
    """What a run found: how many expressions were compared or refused, and each difference."""

    compared: int = 0
    refused: int = 0
    listed: list[tuple[Expression, str]] = field(default_factory=list)
    different: list[tuple[Expression, str]] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """One line of counts."""
        counts = f"{self.compared} compared, {self.refused} refused here, {len(self.listed)} differ as listed"
        return f"{counts}, {len(self.different)} different"


def session_for_fuzzing(spark: Any) -> Any:
    """A session that evaluates as a user's does, expression by expression."""
    logging.getLogger("SQLQueryContextLogger").disabled = True
    session = spark.newSession()
    # Spark would compute constants while it plans, and fail there
    local = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    session.conf.set(EXCLUDED_RULES, f"{local},{CONSTANT_FOLDING}")
    session.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    return session


def compare(
    session: Callable[[], Any],
    expressions: list[Expression],
    generator: Generator,
    seed: int,
    zone: str,
    answers: KeptAnswers | None = None,
) -> Findings:
    """Evaluates the expressions in both engines over the same rows. Spark answers only what `answers` does not."""
    columns, rows = generator.columns, generator.columns.rows(seed)
    kinds, names = tuple(columns.kinds), list(columns.names.values())

    def start() -> Spark:
        session().conf.set("spark.sql.session.timeZone", zone)
        return Spark(session(), rows, kinds, names)

    spark = start() if answers is None else RememberingSpark(answers, start, f"{seed} {zone}")
    duck, found = Duck(rows, zone), Findings()
    accepted = []
    plans = plan_expressions(kinds, [e.text for e in expressions], names, zone)
    for expression, planned in zip(expressions, plans, strict=True):
        if isinstance(planned, InternalError):
            found.different.append((expression, f"our planner fails: {planned.message}"))
        elif isinstance(planned, HeadraceError):
            found.refused += 1
        else:
            accepted.append((expression, planned))

    reasons = ListedReasons(spark, duck, lambda text: plan_expressions(kinds, [text], names, zone)[0])
    for (expression, planned), theirs in zip(accepted, spark.evaluate([e.text for e, _ in accepted]), strict=True):
        found.compared += 1
        problem, listed = _difference(expression, duck, planned, theirs, rows, reasons)
        if problem is not None and isinstance(theirs, Outcome) and FAILED in theirs.values:
            problem, listed = _difference(expression, duck, planned, spark.by_row(expression.text), rows, reasons)
        if problem is not None and not listed and not isinstance(folded := spark.folded(expression.text), str):
            problem, listed = _difference(expression, duck, planned, folded, rows, reasons)
        if problem is None and planned[0] == BOOLEAN:
            problem = _filter_problem(duck, *plan_condition(kinds, expression.text, names, zone))
        if problem is not None:
            (found.listed if listed else found.different).append((expression, problem))
    spark.close()
    return found


def _difference(
    expression: Expression,
    duck: Duck,
    planned: Any,
    theirs: Outcome | str,
    rows: pa.Table,
    reasons: ListedReasons,
) -> tuple[str | None, bool]:
    """How the engines differ, and whether docs/functions.md lists the reason."""
    ours = duck.evaluate(*planned)
    if isinstance(theirs, str):
        return f"Spark refuses it: {theirs}", False
    used = rows.select([name for name in rows.column_names if f"{name} " in _spaced(expression.text)])
    found = differences(ours, theirs, used if used.num_columns else rows.select([0]), expression.ulps)
    if found:
        return f"{len(found)} rows, {found[0]}", reasons.explain(expression.text, ours, theirs)
    return None, False


def _filter_problem(duck: Duck, condition: str | None, parts: list[str]) -> str | None:
    """How a filter differs from the values of its parts."""
    kept, passing = duck.filtered(condition), duck.passing(parts)
    return None if kept == passing else f"{kept} pass the filter, {passing} by its values"


def _spaced(text: str) -> str:
    return "".join(c if c.isalnum() or c == "_" else " " for c in text) + " "


class _Engine:
    """A Spark session that starts when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: Any = None
        self._session: Any = None

    def session(self) -> Any:
        if self._session is None:
            from headrace.model.program import Meaning
            from headrace.spark.session import start

            self._started = start("local[1]", self._folder / "spark.log", Meaning())
            self._session = session_for_fuzzing(self._started.spark)
        return self._session

    def stop(self) -> None:
        if self._started is not None:
            self._started.stop()


def main() -> int:
    """Runs the comparison from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help=f"begin with this expression: a multiple of {ROUND}")
    parser.add_argument("--answers", type=Path, help="keep Spark's answers in this file, and use those kept")
    parser.add_argument("--found", type=Path, help="write the differences to this file, one JSON object per line")
    given = parser.parse_args()
    total, answers = Findings(), None if given.answers is None else KeptAnswers(given.answers)
    with tempfile.TemporaryDirectory() as folder:
        engine = _Engine(Path(folder))
        try:
            generator = Generator()
            for number in range(given.first, given.first + given.count, ROUND):
                seed = given.seed * 1_000_003 + number
                expressions = generator.some(min(ROUND, given.first + given.count - number), seed)
                zone = ZONES[number // ROUND % len(ZONES)]
                found = compare(engine.session, expressions, generator, seed, zone, answers)
                total.compared += found.compared
                total.refused += found.refused
                total.listed += found.listed
                total.different += found.different
                for expression, problem in found.different:
                    print(f"{zone}: {expression.text}\n    {problem}", flush=True)
                if given.found:
                    _write(given.found, found, zone=zone, seed=seed, number=number)
                print(f"{number + len(expressions)}: {total.summary}", flush=True)
        finally:
            engine.stop()
            if answers is not None:
                answers.close()
    print(total.summary)
    return 1 if total.different else 0


def _write(path: Path, found: Findings, **place: Any) -> None:
    """Appends the differences of one round, one JSON object per line."""
    with path.open("a") as file:
        for name in ("different", "listed"):
            for expression, problem in getattr(found, name):
                line = {"kind": name, "key": expression.key, "text": expression.text, "problem": problem, **place}
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
