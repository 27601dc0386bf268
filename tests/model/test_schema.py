"""Types and views: one spelling each, and no text can surprise the parser."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import UnknownType
from headrace.exec import duck
from headrace.model.program import Meaning
from headrace.model.schema import (
    BIGINT,
    DOUBLE,
    INT,
    STRING,
    Array,
    DataType,
    Decimal,
    Field,
    Map,
    Scalar,
    Schema,
    Struct,
    View,
    parse_type,
)
from tests import strategies


@given(strategies.types)
@example(Struct((Field("`", INT), Field("a`", INT), Field("``a``", INT))))
@example(Struct((Field("two words", INT), Field("a: INT>", STRING))))
@example(Struct(()))
def test_a_type_is_what_its_ddl_spells(kind: DataType) -> None:
    assert parse_type(kind.ddl) == kind


@given(strategies.types)
def test_white_space_and_case_do_not_matter_outside_quotes(kind: DataType) -> None:
    if "`" not in kind.ddl:
        spaced = kind.ddl.replace("<", " < ").replace(">", " >\n").replace("(", "\t( ").replace(",", " , ")
        assert parse_type(f"  {spaced} ") == kind
    if not isinstance(kind, Struct | Array | Map):
        assert parse_type(kind.ddl.lower()) == kind


_PIECES = st.sampled_from(
    [
        "INT",
        "array",
        "MAP",
        "STRUCT",
        "DECIMAL",
        "<",
        ">",
        "(",
        ")",
        ",",
        ":",
        "`",
        "`a`",
        "a",
        "1",
        "39",
        "²",
        " ",
        "-",
    ]
)


@given(st.one_of(st.text(max_size=20), st.lists(_PIECES, max_size=10).map("".join)))
@example("DECIMAL(²)")
@example("DECIMAL(" + "9" * 5000 + ")")
@example("ARRAY<" * 5000)
@example("STRUCT<a: " * 5000)
@example("STRUCT<a: INT")
@example("INT INT")
@example("`INT`")
@example("INT`")
@example("")
def test_garbage_is_an_unknown_type_and_nothing_else(text: str) -> None:
    try:
        found = parse_type(text)
    except UnknownType:
        return
    assert parse_type(found.ddl) == found


@pytest.mark.parametrize("text", ["", "IN T", "INT;", "DECIMAL(39)", "DECIMAL(3,4)", "ARRAY<>", "MAP<INT>", "FLOAT64"])
def test_types_that_spark_lacks_are_refused(text: str) -> None:
    with pytest.raises(UnknownType):
        parse_type(text)


@pytest.mark.parametrize(
    ("text", "ddl"),
    [
        ("integer", "INT"),
        ("long", "BIGINT"),
        ("dec", "DECIMAL(10,0)"),
        ("numeric(5)", "DECIMAL(5,0)"),
        ("timestamp_ltz", "TIMESTAMP"),
        ("struct<a int, b: string>", "STRUCT<a: INT, b: STRING>"),
    ],
)
def test_spark_s_other_names_mean_the_same(text: str, ddl: str) -> None:
    assert parse_type(text).ddl == ddl


@given(st.one_of(strategies.scalars, strategies.decimals))
def test_duckdb_gives_back_the_arrow_type_of_a_column(kind: DataType) -> None:
    table = duck.run(Meaning(), f"SELECT CAST(NULL AS {kind.duckdb}) AS x", {})
    schema = Schema((Field("x", kind),)).arrow
    assert duck.conform(table, schema).schema == schema


@pytest.mark.parametrize(
    "kind", [Array(Decimal(5, 2)), Map(STRING, BIGINT), Struct((Field("a b", DOUBLE), Field('q"', Array(INT))))]
)
def test_nested_types_have_the_same_shape_in_duckdb(kind: DataType) -> None:
    table = duck.run(Meaning(), f"SELECT CAST(NULL AS {kind.duckdb}) AS x", {})
    schema = Schema((Field("x", kind),)).arrow
    assert duck.conform(table, schema).schema == schema


def test_names_ignore_case_and_columns_keep_their_index() -> None:
    schema = Schema((Field("Device", STRING), Field("ts", Scalar("TIMESTAMP"))))
    assert schema.index("DEVICE") == 0
    assert schema.index("none") is None
    assert schema.names == ("Device", "ts")
    assert schema.ddl == "Device STRING, ts TIMESTAMP"


def test_all_some_and_none_are_three_different_views() -> None:
    assert [v.kind for v in (View.all(), View.some([1]), View.none())] == ["ALL", "SOME", "NONE"]
    assert View.some(range(3)) != View.all()  # a schema of three columns may have both, and they are not the same


@given(st.lists(strategies.views, max_size=4))
def test_a_union_covers_exactly_its_parts(views: list[View]) -> None:
    union, width = View.union(views), 51
    assert all(union.covers(v, width) for v in views)
    assert set(union.indexes(width)) == {i for v in views for i in v.indexes(width)}
    if not views:
        assert union == View.none()
