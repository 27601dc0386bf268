"""Every definition is read back as it was stored."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import UnknownType
from headrace.model.codec import dump, load
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
from headrace.model.schema import BIGINT, Field, Schema, View
from tests import strategies
from tests.ring0.tasks import WORD, stateless

_EVERY_KIND = {
    Condition: strategies.conditions,
    ComputedColumn: strategies.computed_columns,
    Expression: strategies.expressions,
    Partial: strategies.partials,
    SizedValue: strategies.sized_values,
    FallibleExpression: strategies.fallible_expressions,
    Growth: strategies.growths,
    RowGenerator: strategies.generators,
    Window: strategies.windows,
    Ring0Program: strategies.ring0_programs,
    Ring1Program: strategies.ring1_programs,
    Meaning: strategies.meanings,
    SparkQuery: strategies.spark_queries,
    FeedInput: strategies.feed_inputs,
    SessionVariable: strategies.session_variables,
    DedicatedQuery: strategies.dedicated_queries,
    PipelineProgram: strategies.programs,
    StreamDef: strategies.streams,
    MetadataColumn: strategies.metadata_columns,
    SinkDef: strategies.sinks,
    LateRows: strategies.late_rows,
    PipelineDef: strategies.pipelines,
    PipelineExit: strategies.left,
    PlanVersion: strategies.plans,
    Field: strategies.fields,
    Schema: strategies.schemas,
    View: strategies.views,
    ViewDef: strategies.view_definitions,
}


@settings(max_examples=120)
@given(st.sampled_from(list(_EVERY_KIND)).flatmap(lambda kind: st.tuples(st.just(kind), _EVERY_KIND[kind])))
def test_load_returns_the_value_that_dump_wrote(pair: tuple[type[object], object]) -> None:
    kind, value = pair
    assert load(kind, dump(value)) == value


def test_every_definition_of_a_program_is_covered_here() -> None:
    import dataclasses

    from headrace.model import program

    declared = {v for v in vars(program).values() if dataclasses.is_dataclass(v) and v.__module__ == program.__name__}
    assert declared <= set(_EVERY_KIND)


@given(strategies.options)
def test_equal_values_have_equal_text(options: dict[str, str]) -> None:
    backwards = dict(reversed(options.items()))
    assert dump(SinkDef("s", "memory", options)) == dump(SinkDef("s", "memory", backwards))


def test_the_generation_of_a_pipeline_keeps_its_stored_key() -> None:
    pipeline = replace(stateless(3, WORD), generation=2)
    stored = json.loads(dump(pipeline))
    assert stored["life"] == 2 and "generation" not in stored
    assert load(PipelineDef, json.dumps(stored)) == pipeline


def test_a_field_of_a_later_release_is_ignored() -> None:
    stored = json.loads(dump(SinkDef("s", "memory", {})))
    assert load(SinkDef, json.dumps({**stored, "later": 1})) == SinkDef("s", "memory", {})


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "3", '"x"', '{"name": "s"}', '{"name": "s", "kind": "k", "options": []}']
)
def test_other_text_raises_a_value_or_type_error(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        load(SinkDef, text)


def test_a_type_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="3"):
        load(Field, '{"name": "a", "type": 3}')
    with pytest.raises(UnknownType):
        load(Field, '{"name": "a", "type": "INTT"}')


def test_plans_that_are_read_share_equal_expressions_and_nothing_that_differs() -> None:
    made = [stateless(n, WORD) for n in (1, 2)]
    one, two = (load(PipelineDef, dump(p)) for p in made)
    assert [one, two] == made
    assert one.program.ring0.outputs[0] is two.program.ring0.outputs[0]
    assert one.program.ring0 is not two.program.ring0  # caches of programs are by identity
    other = Expression(one.program.ring0.outputs[0].name, BIGINT, one.program.ring0.outputs[0].sql)
    assert load(Expression, dump(other)) == other != one.program.ring0.outputs[0]
