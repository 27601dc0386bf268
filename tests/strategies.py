"""Shared hypothesis strategies: types, schemas, programs and definitions of any shape."""

from __future__ import annotations

import os

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from headrace.model.definitions import (
    ComputedColumn,
    LateRows,
    MetadataColumn,
    PipelineDef,
    SinkDef,
    StreamDef,
    ViewDef,
)
from headrace.model.plan_version import PipelineExit, PlanVersion
from headrace.model.program import (
    Condition,
    DedicatedQuery,
    Expression,
    FallibleExpression,
    FeedInput,
    Growth,
    Meaning,
    Partial,
    PipelineProgram,
    Ring0Program,
    Ring1Program,
    RowGenerator,
    SessionVariable,
    SizedValue,
    SparkQuery,
    Window,
)
from headrace.model.schema import Array, DataType, Decimal, Field, Map, Scalar, Schema, Struct, View


def examples(count: int) -> int:
    """How many examples a dear property gets; HEADRACE_EXAMPLES=50 tries fifty times as many."""
    return count * int(os.environ.get("HEADRACE_EXAMPLES", "1"))


SCALARS = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP",
    "TIMESTAMP_NTZ",
)  # fmt: skip

# Any text that UTF-8 can carry, with the characters that quoting has to survive made likely.
texts: SearchStrategy[str] = st.text(
    st.one_of(st.sampled_from("`\"' \t<>(),:aZ_9éß"), st.characters(codec="utf-8")), max_size=8
)
names: SearchStrategy[str] = texts.filter(bool)

scalars: SearchStrategy[DataType] = st.sampled_from(SCALARS).map(Scalar)
decimals: SearchStrategy[DataType] = st.integers(1, 38).flatmap(
    lambda p: st.integers(0, p).map(lambda scale: Decimal(p, scale))
)


def _nested(inner: SearchStrategy[DataType]) -> SearchStrategy[DataType]:
    fields = st.lists(st.builds(Field, names, inner), max_size=3).map(tuple)
    return st.one_of(st.builds(Array, inner), st.builds(Map, inner, inner), st.builds(Struct, fields))


types: SearchStrategy[DataType] = st.recursive(scalars | decimals, _nested, max_leaves=5)
fields: SearchStrategy[Field] = st.builds(Field, names, types)
schemas: SearchStrategy[Schema] = st.builds(Schema, st.lists(fields, min_size=1, max_size=3).map(tuple))
views: SearchStrategy[View] = st.builds(View, st.none() | st.frozensets(st.integers(0, 50), max_size=5))
windows: SearchStrategy[Window] = st.builds(
    Window,
    st.sampled_from(("tumble", "hop", "cumulate", "session")),
    st.integers(1, 10**12),
    st.integers(1, 10**12),
    st.integers(-(10**9), 10**9),
)
options: SearchStrategy[dict[str, str]] = st.dictionaries(texts, texts, max_size=3)
micros: SearchStrategy[int] = st.integers(0, 10**12)

expressions = st.builds(Expression, names, types, texts)
partials = st.builds(Partial, names, types, texts, texts, texts)
meanings = st.builds(Meaning, texts)


def _few(item: SearchStrategy[object]) -> SearchStrategy[tuple[object, ...]]:
    return st.lists(item, max_size=2).map(tuple)


sized_values = st.builds(SizedValue, texts, texts)
finite = st.floats(allow_nan=False, allow_infinity=False)
growths = st.builds(
    Growth, _few(sized_values), texts, st.none() | st.dictionaries(texts, finite, max_size=3), finite, st.booleans()
)
conditions = st.builds(Condition, texts, _few(st.integers(0, 50)))
fallible_expressions = st.builds(
    FallibleExpression, texts, texts, _few(st.integers(0, 50)), st.integers(0, 3), _few(texts)
)
generators = st.builds(RowGenerator, _few(expressions), _few(texts), st.booleans(), st.none() | texts, growths)
ring0_programs = st.builds(
    Ring0Program,
    st.none() | texts,
    _few(expressions),
    _few(expressions),
    st.none() | windows,
    _few(partials),
    _few(st.integers(0, 50)),
    _few(conditions),
    _few(generators),
    st.none() | texts,
    st.none() | _few(st.integers(0, 5)),
    growths,
    _few(fallible_expressions),
)
ring1_programs = st.builds(
    Ring1Program,
    _few(fields),
    st.none() | windows,
    _few(partials),
    st.sampled_from(("close", "changes")),
    st.none() | texts,
    _few(expressions),
    growths,
    _few(expressions),
    st.none() | texts,
)
spark_queries = st.builds(
    SparkQuery,
    texts,
    names,
    schemas,
    _few(st.tuples(st.integers(0, 99), st.integers(0, 99), texts)),
    _few(st.tuples(st.integers(0, 99), st.integers(0, 99), texts, texts)),
    st.none() | micros,
)
feed_inputs = st.builds(
    FeedInput, names, names, views, ring0_programs, schemas, st.none() | names, st.integers(0, 2**40)
)
session_variables = st.builds(SessionVariable, texts, texts, texts)
dedicated_queries = st.builds(
    DedicatedQuery,
    texts,
    st.lists(feed_inputs, min_size=1, max_size=2).map(tuple),
    st.sampled_from(("append", "update")),
    st.booleans(),
    texts,
    texts,
    st.lists(session_variables, max_size=2).map(tuple),
    st.booleans(),
)
programs = st.builds(
    PipelineProgram,
    texts,
    views,
    ring0_programs,
    st.none() | ring1_programs,
    schemas,
    meanings,
    st.none() | spark_queries,
    st.none() | dedicated_queries,
)
sinks = st.builds(SinkDef, names, texts, options, texts)
metadata_columns = st.builds(MetadataColumn, st.integers(0, 20), names)
computed_columns = st.builds(
    ComputedColumn, st.integers(0, 20), texts, _few(st.integers(0, 20)), meanings, texts, texts, growths
)
streams = st.builds(
    StreamDef,
    names,
    schemas,
    st.none() | st.integers(0, 2),
    micros,
    texts,
    texts,
    options,
    texts,
    st.none() | sinks,
    _few(metadata_columns),
    _few(computed_columns),
    _few(st.tuples(st.integers(0, 20), st.integers(1, 100))),
)
view_definitions = st.builds(ViewDef, names, texts, _few(names), _few(names), schemas, texts)
late_rows = st.builds(LateRows, sinks, _few(expressions))
pipelines = st.builds(
    PipelineDef,
    names,
    st.integers(1, 2**62),
    _few(sinks),
    programs,
    st.integers(1, 64),
    texts,
    st.none() | st.integers(1, 2**62),
    st.integers(1, 2**60),
    st.none() | late_rows,
    pooled=st.booleans(),
    spread=st.booleans(),
    views=_few(view_definitions),
)
left = st.builds(PipelineExit, pipelines, st.booleans())
plans = st.builds(PlanVersion, st.integers(1, 2**31), streams, _few(pipelines), st.booleans(), _few(left))
