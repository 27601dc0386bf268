"""Evaluates one SQL expression in both engines, row by row, and compares: values, errors and result types.

Spark evaluates under its own TryEval, so that a row that fails does not hide the others. DuckDB evaluates the text that
our planner makes of the same SQL.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.errors import HeadraceError, InternalError, UnknownType
from headrace.exec import duck
from headrace.exec.map_entries import with_entries
from headrace.exec.trying import ROW, fails
from headrace.model.definitions import StreamDef
from headrace.model.program import Meaning, Ring0Program
from headrace.model.schema import BOOLEAN, NESTED, Array, DataType, Field, Map, Schema, Struct, parse_type
from headrace.model.schema import Decimal as DecimalType
from headrace.sql import Select, parse_script, plan_on_shared_host
from headrace.sql.plan.types import VOID
from headrace.state.catalog import Catalog

TIME_ZONE = "America/New_York"
MEANING = Meaning(time_zone=TIME_ZONE)
FAILED = "<error>"
NO_TEXT = "<bytes that are no UTF-8>"
TOGETHER_ONLY = "<fails only together with other rows>"
TOGETHER = 40  # expressions in one Spark job
# The settings of the session that decide in a task which operands are evaluated.
IN_TASKS = ("spark.sql.subexpressionElimination.enabled", "spark.sql.codegen.wholeStage")
# Spark evaluates parts of these before the rest, where TryEval does not catch them. They do not fail the others' job.
EVALUATED_BEFORE = re.compile(r"\b(nullif|nullifzero|regexp_substr|between)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Outcome:
    """The result type and the value of each row; FAILED where the engine raised."""

    type: str
    values: list[Any]


def plan_expressions(
    kinds: tuple[str, ...], texts: list[str], columns: Sequence[str] = "abcdef", time_zone: str = TIME_ZONE
) -> list[tuple[DataType, str] | HeadraceError]:
    """Our planner's result type and DuckDB text for each expression, or its refusal."""
    found: list[tuple[DataType, str] | HeadraceError] = []
    for text in texts:
        try:
            (output,) = _planned(kinds, f"SELECT {text} AS r FROM v", columns, time_zone).outputs
            found.append((output.type, output.sql))
        except HeadraceError as problem:
            found.append(problem)
        except Exception as problem:  # a defect of the planner must not end the comparison
            found.append(InternalError(f"{type(problem).__name__}: {problem}"))
    return found


def plan_condition(
    kinds: tuple[str, ...], text: str, columns: Sequence[str], time_zone: str
) -> tuple[str | None, list[str]]:
    """DuckDB's text of a WHERE, None if it keeps all rows, and those of the operands of its AND."""
    ring0 = _planned(kinds, f"SELECT 1 AS r FROM v WHERE {text}", columns, time_zone)
    return ring0.filter, [condition.sql for condition in ring0.conditions]


def _planned(kinds: tuple[str, ...], query: str, columns: Sequence[str], time_zone: str) -> Ring0Program:
    fields = tuple(Field(columns[i], parse_type(kind.removeprefix("SMALL "))) for i, kind in enumerate(kinds))
    names = Catalog().with_stream(StreamDef("v", Schema(fields), None, 0, "generator", "json", {}))
    (statement,) = parse_script(query)
    assert isinstance(statement, Select)
    return plan_on_shared_host(statement, names, Meaning(time_zone=time_zone)).program.ring0


class Duck:
    """DuckDB as the runtime sets it up, over one frame."""

    def __init__(self, table: pa.Table, time_zone: str = TIME_ZONE) -> None:
        meaning = Meaning(time_zone=time_zone)
        self.connection = duck.connection(meaning)
        duck.set_clock([meaning], 1_700_000_000_000_000)
        renamed = table.rename_columns([f"c{i}" for i in range(table.num_columns)])
        for i, array in enumerate(_struct_fields(table)):  # as Ring 0 has them
            renamed = renamed.append_column(f"c{NESTED + i}", array)
        renamed = renamed.append_column(ROW, pa.array(range(table.num_rows), pa.int64()))
        for name in [f.name for f in renamed.schema if pa.types.is_map(f.type)]:
            renamed = with_entries(f"{name}_entries", renamed)
        self.connection.register("rows", renamed)
        self.count = table.num_rows

    def filtered(self, sql: str | None) -> list[int] | str:
        """The numbers of the rows that pass a filter, or FAILED."""
        try:
            found = self.connection.execute(f"SELECT {ROW} FROM rows WHERE ({sql or 'true'})").fetchall()
        except duckdb.Error:
            return FAILED
        return sorted(row[0] for row in found)

    def evaluate(self, kind: DataType, sql: str) -> Outcome:
        """Every row's value. When some row fails, DuckDB's TRY finds out which; where DuckDB refuses it, the rows are
        evaluated one by one."""
        wire = _wire(kind, duck.typed(kind, sql))
        try:
            return Outcome(kind.ddl, self._fetch(kind, f"SELECT {wire} FROM rows ORDER BY {ROW}"))
        except duckdb.Error:
            pass
        try:
            return Outcome(kind.ddl, self._tried(kind, wire))
        except duckdb.Error:
            return Outcome(kind.ddl, self._one_by_one(kind, wire))

    def failure(self, kind: DataType, sql: str, row: int) -> str:
        """DuckDB's message about a row that fails; empty where it does not."""
        try:
            self.connection.execute(
                f"SELECT {_wire(kind, duck.typed(kind, sql))} FROM rows WHERE {ROW} = {row}"
            ).fetchall()
        except duckdb.Error as problem:
            return str(problem)
        return ""

    def passing(self, parts: list[str]) -> list[int] | str:
        """The rows that pass a filter, by the values of the operands of its AND: the next one is evaluated where one is
        true. FAILED if one fails."""
        rows = set(range(self.count))
        for part in parts:
            values = self.evaluate(BOOLEAN, part).values
            if any(values[row] == FAILED for row in rows):
                return FAILED
            rows = {row for row in rows if values[row] is True}
        return sorted(rows)

    def _tried(self, kind: DataType, wire: str) -> list[Any]:
        """FAILED or the value of each row, in two statements: which rows fail, and the values of the others."""
        query = f"SELECT {ROW} FROM rows WHERE {fails(wire)}"
        failed = {row[0] for row in self.connection.execute(query).fetchall()}
        rest = f"{ROW} NOT IN ({', '.join(map(str, failed))})" if failed else "true"
        try:
            values = iter(self._fetch(kind, f"SELECT {wire} FROM (FROM rows WHERE {rest}) ORDER BY {ROW}"))
        except duckdb.Error:
            return [TOGETHER_ONLY] * self.count
        return [FAILED if i in failed else next(values) for i in range(self.count)]

    def _one_by_one(self, kind: DataType, wire: str) -> list[Any]:
        try:
            self.connection.execute(f"PREPARE one AS SELECT {wire} FROM rows WHERE {ROW} = $1")
        except duckdb.Error:  # a constant that DuckDB computes when it plans
            return [FAILED] * self.count
        found: list[Any] = []
        for row in range(self.count):
            try:
                found += self._fetch(kind, f"EXECUTE one({row})")
            except duckdb.Error:
                found.append(FAILED)
        self.connection.execute("DEALLOCATE one")
        return found

    def _fetch(self, kind: DataType, sql: str) -> list[Any]:
        if isinstance(kind, Array | Map | Struct):  # as Arrow values on both sides
            column = duck.conform(self.connection.sql(sql).to_arrow_table(), pa.schema([("r", kind.arrow)])).column(0)
            found: list[Any] = _numbered(column).to_pylist()
            return found
        return [_from_duck(kind, row[0]) for row in self.connection.execute(sql).fetchall()]


def _struct_fields(table: pa.Table) -> list[Any]:
    """The fields of the STRUCT columns, in the order of `nested_fields`."""
    found: list[Any] = []

    def add(array: Any) -> None:
        if pa.types.is_struct(array.type):
            for place in range(array.type.num_fields):
                found.append(pc.struct_field(array, [place]))
                add(found[-1])

    for column in table.columns:
        add(column)
    return found


def _wire(kind: DataType, sql: str) -> str:
    """Times as numbers and decimals as text, so that Python's own types lose nothing."""
    if kind.ddl in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        return f"epoch_us({sql})"
    if kind.ddl == "DATE":
        return f"({sql} - DATE '1970-01-01')"
    return f"CAST({sql} AS VARCHAR)" if isinstance(kind, DecimalType) else sql


def _from_duck(kind: DataType, value: Any) -> Any:
    if value is None:
        return value
    if isinstance(kind, DecimalType):
        return Decimal(value)
    return bytes(value) if kind.ddl == "BINARY" else value


EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
CONSTANT_FOLDING = "org.apache.spark.sql.catalyst.optimizer.ConstantFolding"


class Spark:
    """Spark over one frame, a job for many expressions."""

    def __init__(
        self, session: Any, table: pa.Table, kinds: tuple[str, ...], columns: Sequence[str] = "abcdef"
    ) -> None:
        self.session = session
        schema = ", ".join(f"{columns[i]} {k.removeprefix('SMALL ')}" for i, k in enumerate(kinds))
        self.count = table.num_rows
        rows = [(*row, i) for i, row in enumerate(rows_for_spark(table, kinds))]
        self.frame = session.createDataFrame(rows, f"{schema}, row_number INT").coalesce(1)
        self.frame.createOrReplaceTempView("v")
        self.single_rows: Any = None

    def evaluate(self, texts: list[str]) -> list[Outcome | str]:
        """For each expression every row's value, or why Spark refuses it."""
        found: dict[str, Outcome | str] = {}
        before = [text for text in texts if EVALUATED_BEFORE.search(text)]
        for group in (before, [text for text in texts if text not in before]):
            for i in range(0, len(group), TOGETHER):
                some = group[i : i + TOGETHER]
                found.update(zip(some, self._halves(some), strict=True))
        return [found[text] for text in texts]

    def may_be_null(self, text: str) -> bool:
        """True if Spark believes that an expression may be NULL when it has simplified it, or refuses it."""
        try:
            frame = self.session.sql(f"SELECT {text} AS r FROM v")
            found: bool = frame._jdf.queryExecution().optimizedPlan().schema().apply(0).nullable()
        except (AnalysisException, Py4JJavaError):
            return True
        return found

    def folded(self, text: str) -> Outcome | str:
        """The values of an expression whose constants Spark computes first, as in a user's session."""
        excluded = self.session.conf.get(EXCLUDED_RULES)
        self.session.conf.set(EXCLUDED_RULES, excluded.replace(CONSTANT_FOLDING, ""))
        try:
            return self._halves([text])[0]
        finally:
            self.session.conf.set(EXCLUDED_RULES, excluded)

    def close(self) -> None:
        """Releases the rows."""
        if self.single_rows is not None:
            self.single_rows.unpersist(True)

    def _halves(self, texts: list[str]) -> list[Outcome | str]:
        """All at once, or in two halves when Spark refuses one of them."""
        try:
            return list(self._together(texts))
        except AnalysisException as problem:
            if len(texts) == 1:
                return [str(problem).split("\n")[0]]
        except (PySparkException, Py4JJavaError):
            if len(texts) == 1:
                return [self.by_row(texts[0])]
        middle = len(texts) // 2
        return self._halves(texts[:middle]) + self._halves(texts[middle:])

    def _together(self, texts: list[str]) -> list[Outcome]:
        """TryEval turns a failure into NULL. It evaluates a struct of the value, which is NULL only after a failure."""
        jvm = self.session._jvm
        catalyst = jvm.org.apache.spark.sql.catalyst
        selected = ", ".join(f"{text} AS r{i}" for i, text in enumerate(texts))
        plan = self.session.sql(f"SELECT {selected} FROM v")._jdf.queryExecution().analyzed()
        kinds, tried = [], []
        for i in range(len(texts)):
            expression = plan.projectList().apply(i).child()
            kinds.append(_spark_type(expression.dataType().sql().replace(" NOT NULL", "")))
            value = catalyst.expressions.CreateStruct.apply(_sequence(jvm, [self._named(expression, "v")]))
            tried.append(self._named(catalyst.expressions.TryEval(value), f"value{i}"))
        projected = catalyst.plans.logical.Project(_sequence(jvm, tried), plan.child())
        dataset = jvm.org.apache.spark.sql.classic.Dataset.ofRows(self.session._jsparkSession, projected)
        # not toArrow(): it refuses the NULL of a struct with a field that is never NULL
        table = pa.Table.from_batches(DataFrame(dataset, self.session)._collect_as_arrow())  # type: ignore[operator]
        return [
            Outcome(kind.ddl, _from_spark(kind, table.column(f"value{i}").combine_chunks()))
            for i, kind in enumerate(kinds)
        ]

    def by_row(self, text: str) -> Outcome:
        """Row by row: Spark evaluates parts of `nullif` and of functions made of it before the rest, where TryEval does
        not catch them. And a function that has failed may hold parts of that row, which it adds to the next one; a
        query ends there. A row is a partition, so Spark plans once and runs a task for each."""
        if self.single_rows is None:
            self.single_rows = self.frame.repartitionByRange(self.count, "row_number").persist()
            self.single_rows.createOrReplaceTempView("single_rows")
        found = self.session.sql(f"SELECT {text} AS v, row_number FROM single_rows")
        kind = _spark_type(found.schema.fields[0].dataType.simpleString())
        schema = to_arrow_schema(found.schema, timezone=self.session.conf.get("spark.sql.session.timeZone"))
        try:
            batches = found._jdf.toArrowBatchRdd().toJavaRDD()
        except (PySparkException, Py4JJavaError):  # Spark's optimizer fails, so no row has a value
            return Outcome(kind.ddl, [FAILED] * self.count)
        for name in IN_TASKS:  # tasks outside of a query do not know the session's settings
            self.session.sparkContext.setLocalProperty(name, self.session.conf.get(name))
        values: dict[int, Any] = {}
        for partition in range(batches.getNumPartitions()):
            wanted = self.session.sparkContext._gateway.new_array(self.session._jvm.int, 1)
            wanted[0] = partition
            try:
                (records,) = batches.collectPartitions(wanted)
            except (PySparkException, Py4JJavaError):
                continue
            for record in records:
                batch = pa.ipc.read_record_batch(pa.py_buffer(record), schema)
                value = _from_spark(kind, pa.StructArray.from_arrays([batch.column(0)], ["v"]))
                numbers: list[Any] = batch.column(1).to_pylist()
                values.update(zip(numbers, value, strict=True))
        return Outcome(kind.ddl, [values.get(row, FAILED) for row in range(self.count)])

    def _named(self, expression: Any, name: str) -> Any:
        jvm = self.session._jvm
        catalyst = jvm.org.apache.spark.sql.catalyst.expressions
        none, empty = jvm.scala.Option.empty(), _sequence(jvm, [])
        return catalyst.Alias(expression, name, catalyst.NamedExpression.newExprId(), empty, none, empty)


def _spark_type(text: str) -> DataType:
    """The type of an expression; VOID also for a nested type with VOID inside, which streams do not have."""
    try:
        return parse_type(text)
    except UnknownType:
        return VOID


def _sequence(jvm: Any, items: list[Any]) -> Any:
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(items)


def rows_for_spark(table: pa.Table, kinds: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The rows as Spark takes them from Python."""
    types = [parse_type(kind.removeprefix("SMALL ")) for kind in kinds]
    columns = [[_to_spark(kind, v) for v in table.column(i).to_pylist()] for i, kind in enumerate(types)]
    return list(zip(*columns, strict=True))


def _to_spark(kind: DataType, value: Any) -> Any:
    """A value of an Arrow array as PySpark takes it: maps as dictionaries."""
    if value is None:
        return None
    if isinstance(kind, Array):
        return [_to_spark(kind.element, v) for v in value]
    if isinstance(kind, Map):
        return {_to_spark(kind.key, k): _to_spark(kind.value, v) for k, v in value}
    if isinstance(kind, Struct):
        return {f.name: _to_spark(f.type, value[f.name]) for f in kind.fields}
    return value


def _from_spark(kind: DataType, found: Any) -> list[Any]:
    """Times as numbers; FAILED where there is not even a struct."""
    failed, values = found.is_null().to_pylist(), _numbered(found.field("v"))
    return [FAILED if f else _value(value) for value, f in zip(values, failed, strict=True)]


def _value(found: Any) -> Any:
    """The value of an Arrow scalar."""
    try:
        return found.as_py()
    except UnicodeDecodeError:  # Spark keeps any bytes in a string
        return NO_TEXT


def _numbered(values: Any) -> Any:
    """Times as numbers, also inside of nested values: Python has no years beyond 9999."""
    return values.cast(_numbers(values.type))


def _numbers(kind: Any) -> Any:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(_numbers(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_numbers(kind.key_type), _numbers(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _numbers(f.type)) for f in kind])
    return kind


def same(kind: str, ours: Any, theirs: Any, ulps: int = 0) -> bool:
    """Whether two values are the same: NaN equals NaN, and zero has a sign. Nested values are compared by parts."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(same("", v, theirs[k], ulps) for k, v in ours.items())
    if isinstance(ours, dt.datetime) and isinstance(theirs, dt.datetime) and ours.tzinfo and theirs.tzinfo:
        return epoch(ours) == epoch(theirs)  # Python never takes an hour that occurs twice as equal in two zones
    if isinstance(ours, list | tuple) and type(ours) is type(theirs):
        return len(ours) == len(theirs) and all(same("", a, b, ulps) for a, b in zip(ours, theirs, strict=True))
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
