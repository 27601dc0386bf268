"""Evaluates one SQL expression in both engines, row by row, and compares: values, errors and result types.

Spark evaluates through its own expression interpreter, so that a row that fails does not hide the others. DuckDB
evaluates the text that our planner makes of the same SQL.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.program import Meaning, StreamDef
from headrace.schema import Array, DataType, Field, Scalar, Schema, parse_type
from headrace.schema import Decimal as DecimalType
from headrace.sql import ScriptNames, Select, parse_script, plan_pipeline

TIME_ZONE = "America/New_York"
MEANING = Meaning(time_zone=TIME_ZONE)
FAILED = "<error>"


@dataclass(frozen=True)
class Outcome:
    """The result type and the value of each row; FAILED where the engine raised."""

    type: str
    values: list[Any]


def plan_expressions(kinds: tuple[str, ...], texts: list[str]) -> list[tuple[DataType, str] | HeadraceError]:
    """Our planner's result type and DuckDB text for each expression, or its refusal."""
    fields = tuple(Field("abcdef"[i], parse_type(kind.removeprefix("SMALL "))) for i, kind in enumerate(kinds))
    names = ScriptNames()
    names.add_stream(StreamDef("v", Schema(fields), None, 0, "generator", "json", {}))
    found: list[tuple[DataType, str] | HeadraceError] = []
    for text in texts:
        try:
            (statement,) = parse_script(f"SELECT {text} AS r FROM v")
            assert isinstance(statement, Select)
            (output,) = plan_pipeline(statement, names, MEANING).program.ring0.outputs
            found.append((output.type, output.sql))
        except HeadraceError as problem:
            found.append(problem)
    return found


class Duck:
    """DuckDB as the runtime sets it up, over one frame."""

    def __init__(self, table: pa.Table) -> None:
        self.connection = duckdb.connect(":memory:")
        self.connection.execute(f"SET threads=1; SET TimeZone='{TIME_ZONE}'")
        renamed = table.rename_columns([f"c{i}" for i in range(table.num_columns)])
        renamed = renamed.append_column("row_number", pa.array(range(table.num_rows), pa.int64()))
        self.connection.register("arrow_rows", renamed)
        self.connection.execute("CREATE TABLE rows AS SELECT * FROM arrow_rows")
        self.count = table.num_rows

    def evaluate(self, kind: DataType, sql: str) -> Outcome:
        """Every row's value; rows are tried one by one only when some row fails."""
        wire = _wire(kind, f"CAST({sql} AS {kind.duckdb})")
        try:
            fetched = self.connection.execute(f"SELECT {wire} FROM rows ORDER BY row_number").fetchall()
            return Outcome(kind.ddl, [_from_duck(kind, row[0]) for row in fetched])
        except duckdb.Error:
            return Outcome(kind.ddl, [self._one(kind, wire, i) for i in range(self.count)])

    def _one(self, kind: DataType, wire: str, row: int) -> Any:
        try:
            fetched = self.connection.execute(f"SELECT {wire} FROM rows WHERE row_number = {row}").fetchone()
        except duckdb.Error:
            return FAILED
        assert fetched is not None
        return _from_duck(kind, fetched[0])


def _wire(kind: DataType, sql: str) -> str:
    """Times as numbers and decimals as text, so that Python's own types lose nothing."""
    if kind.ddl in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        return f"epoch_us({sql})"
    if kind.ddl == "DATE":
        return f"({sql} - DATE '1970-01-01')"
    return f"CAST({sql} AS VARCHAR)" if isinstance(kind, DecimalType) else sql


def _from_duck(kind: DataType, value: Any) -> Any:
    if value is None or isinstance(kind, Array):
        return value
    if isinstance(kind, DecimalType):
        return Decimal(value)
    return bytes(value) if kind.ddl == "BINARY" else value


class Spark:
    """Spark's expression interpreter over one frame."""

    def __init__(self, session: Any, table: pa.Table, kinds: tuple[str, ...]) -> None:
        self.session, self.kinds = session, kinds
        frame = session.createDataFrame(
            _rows(table, kinds), ", ".join(f"{'abcdef'[i]} {k.removeprefix('SMALL ')}" for i, k in enumerate(kinds))
        )
        frame.createOrReplaceTempView("v")
        self.output = frame._jdf.queryExecution().analyzed().output()
        self.rows = list(frame._jdf.queryExecution().executedPlan().executeCollect())

    def evaluate(self, text: str) -> Outcome | str:
        """Every row's value, or why Spark refuses the expression."""
        jvm = self.session._jvm
        try:
            plan = self.session.sql(f"SELECT {text} AS r FROM v")._jdf.queryExecution().optimizedPlan()
        except Exception as problem:
            return str(problem).split("\n")[0]
        if plan.nodeName() != "Project":
            return f"no projection: {plan.nodeName()}"
        expression = plan.projectList().apply(0)
        catalyst = jvm.org.apache.spark.sql.catalyst.expressions
        # TryEval turns a failure into NULL; asking whether the value is NULL tells a failure from a real NULL
        judged = [catalyst.TryEval(expression), catalyst.TryEval(catalyst.IsNull(expression))]
        sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq(judged)
        projection = catalyst.InterpretedMutableProjection(sequence, plan.child().output())
        kind = expression.dataType()
        ddl = parse_type(kind.sql())
        return Outcome(ddl.ddl, [self._one(projection, row, kind, ddl) for row in self._picked(plan)])

    def _picked(self, plan: Any) -> list[Any]:
        """The rows as the projection's child puts them out: Spark may have pruned columns."""
        output = plan.child().output()
        if output.size() == self.output.size():
            return self.rows
        return list(plan_rows(self.session, plan))

    def _one(self, projection: Any, row: Any, kind: Any, ddl: DataType) -> Any:
        result = projection.apply(row)
        value = result.get(0, kind)  # every call crosses to the JVM, so NULL is looked at only when it is one
        if value is None:
            return FAILED if result.isNullAt(1) else None
        return _from_spark(ddl, value)


def plan_rows(session: Any, plan: Any) -> list[Any]:
    """The rows of a plan's child."""
    execution = session._jsparkSession.sessionState().executePlan(
        plan.child(), session._jvm.org.apache.spark.sql.execution.CommandExecutionMode.ALL()
    )
    return list(execution.executedPlan().executeCollect())


def _rows(table: pa.Table, kinds: tuple[str, ...]) -> list[tuple[Any, ...]]:
    columns = [table.column(i).to_pylist() for i in range(len(kinds))]
    columns = [
        [v if v is None else dict(v) for v in column] if kind.startswith("MAP") else column
        for column, kind in zip(columns, kinds, strict=True)
    ]
    return list(zip(*columns, strict=True))


def _from_spark(kind: DataType, value: Any) -> Any:
    if isinstance(kind, DecimalType):
        return value.toJavaBigDecimal()
    if isinstance(kind, Array):
        element = kind.element
        assert element == Scalar("STRING")
        return [None if value.isNullAt(i) else value.getUTF8String(i).toString() for i in range(value.numElements())]
    if kind == Scalar("STRING"):
        return value.toString()
    return bytes(value) if kind.ddl == "BINARY" else value


def same(kind: str, ours: Any, theirs: Any, ulps: int = 0) -> bool:
    """Whether two values are the same: NaN equals NaN, and zero has a sign."""
    if isinstance(ours, float) and isinstance(theirs, float):
        if math.isnan(ours) or math.isnan(theirs):
            return math.isnan(ours) and math.isnan(theirs)
        if kind == "FLOAT":
            ours, theirs = (struct.unpack("f", struct.pack("f", x))[0] for x in (ours, theirs))
        if ours == theirs:
            return math.copysign(1, ours) == math.copysign(1, theirs)
        return math.isfinite(ours) and abs(ours - theirs) <= ulps * math.ulp(ours)
    return type(ours) is type(theirs) and bool(ours == theirs)


def differences(duck: Outcome, spark: Outcome, table: pa.Table, ulps: int = 0) -> list[str]:
    """How the two outcomes differ, a line per row; empty when they agree."""
    if duck.type != spark.type:
        return [f"type {duck.type} here, {spark.type} in Spark"]
    found = []
    for i, (ours, theirs) in enumerate(zip(duck.values, spark.values, strict=True)):
        if not same(duck.type, ours, theirs, ulps):
            row = {k: v[0] for k, v in table.slice(i, 1).to_pydict().items()}
            found.append(f"{_short(row)}: {_short(ours)} here, {_short(theirs)} in Spark")
    return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 160 else text[:160] + "..."


def epoch(value: dt.datetime) -> int:
    """Microseconds since 1970."""
    delta = value.astimezone(dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
