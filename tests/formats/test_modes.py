"""`mode`: PERMISSIVE, DROPMALFORMED and FAILFAST. test_differences.py compares them with Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace.errors import BadOption, HeadraceError
from headrace.formats import FORMATS
from headrace.model.schema import Field, Schema, parse_type
from tests.formats.test_json import table
from tests.ring0.tasks import TS, WORD, N, at, counting, lines, stateless, stream, task

RECORDS = lines(
    {"word": "a", "n": 1, "ts": at(1)},
    "{",
    {"word": "b", "n": "x", "ts": at(2)},
    {"word": "c", "n": 3, "ts": "soon"},
    "[1]",
    {"word": "d", "n": 4, "ts": at(4)},
)


@pytest.mark.parametrize("where", [None, "c1 IS NULL OR c1 > 1"])
def test_permissive_makes_every_record_a_row_with_null_for_what_is_bad(where: str | None) -> None:
    picked = stateless(1, WORD, N, TS, where=where)  # with a filter, the other columns are parsed late
    sent = task([picked, counting(2, None)] if where is None else [picked], RECORDS, declared=stream(mode="PERMISSIVE"))
    expected = [("a", 1), (None, None), ("b", None), ("c", 3), (None, None), ("d", 4)]
    assert [(r["word"], r["n"]) for r in sent.rows[1]] == expected[0 if where is None else 1 :]
    assert sum(r["ts"] is None for r in sent.rows[1]) == 3
    assert sent.report.bad == {"bad_json": 1, "not_an_object": 1, "bad_timestamp": 1, "bad_integer": 1}
    assert sent.report.rows == 6
    if where is None:
        assert sent.events[2, 0] == [{"p0": 6}]


def test_permissive_keeps_no_row_of_a_record_that_is_too_long() -> None:
    data = lines({"word": "a"}, "{" + "x" * 100, {"word": "b" * 100}, {"word": "c"})
    sent = task([stateless(1, WORD)], data, declared=stream(mode="permissive", max_record_bytes="90"))
    assert [r["word"] for r in sent.rows[1]] == ["a", "c"]
    assert sent.report.bad["record_too_long"] == 2


@pytest.mark.parametrize(("mode", "policy"), [("DropMalformed", "skip"), ("FAILFAST", "fail")])
def test_the_other_modes_are_other_names(mode: str, policy: str) -> None:
    pipelines = [stateless(1, WORD), stateless(2, WORD, N)]
    data = lines({"word": "a", "n": 1, "ts": at(1)}, {"word": "b", "n": "x", "ts": at(2)})
    one, other = (
        task(pipelines, data, declared=stream("json", TS, **o)) for o in ({"mode": mode}, {"on_error": policy})
    )
    for pipeline in pipelines:
        assert one.of(pipeline) == other.of(pipeline)
    assert one.report.bad == other.report.bad


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"mode": "PERMISSIVE", "on_error": "null"}, "BAD_OPTION"),
        ({"mode": "FAILFAST", "on_error": "skip"}, "BAD_OPTION"),
        ({"mode": "DROPMALFORMED", "dead_letter_sink": "m"}, "BAD_OPTION"),
        ({"mode": "lenient"}, "BAD_OPTION"),
        ({"format": "text", "mode": "PERMISSIVE"}, "UNKNOWN_OPTION"),
    ],
)
def test_options_that_contradict_each_other_are_refused_where_they_stand(
    tmp_path: Path, options: dict[str, str], code: str
) -> None:
    (tmp_path / "in").mkdir()
    given = {"source": "files", "path": str(tmp_path / "in"), "format": "json"} | options
    written = ", ".join(f"{k} = '{v}'" for k, v in given.items())
    with headrace.connect(tmp_path / "state") as hub, pytest.raises(HeadraceError) as refused:
        hub.sql(f"CREATE SINK m WITH (type = 'memory'); CREATE STREAM s (v STRING) WITH ({written})")
    assert refused.value.code == code
    assert refused.value.span is not None


def test_a_record_of_another_length_is_bad_in_permissive_mode_only_if_asked() -> None:
    schema = Schema((Field("a", parse_type("INT")), Field("b", parse_type("INT"))))
    data = b"1\n2,3,4\n5,6\n"
    lenient = FORMATS["csv"].make(schema, {"mode": "PERMISSIVE"}).decode(data, [0, 1], "o", 0)
    assert (table(lenient), lenient.bad.counts()) == ([[1, None], [2, 3], [5, 6]], {})
    strict = FORMATS["csv"].make(schema, {"mode": "PERMISSIVE", "ragged": "bad"}).decode(data, [0, 1], "o", 0)
    assert (table(strict), strict.bad.counts()) == ([[None, None], [None, None], [5, 6]], {"field_count": 2})
    with pytest.raises(BadOption):
        FORMATS["csv"].make(schema, {"mode": "PERMISSIVE", "on_error": "skip"})


PIECES = [b'{"a":1,"b":"x"}', b"{", b"[]", b'{"a":"y"}', b"", b" ", b'{"b":2,"a":3}']
CSV_PIECES = [b'1,"x"', b'"', b"1,2,3", b"", b'y,"a\nb"', b'"q"z,1', b"4,5"]


@settings(deadline=None, max_examples=80)
@given(st.booleans(), st.lists(st.integers(0, 6), max_size=12), st.booleans(), st.data())
def test_rows_of_bad_records_stand_where_the_records_stand(
    csv: bool, chosen: list[int], multiline: bool, data: st.DataObject
) -> None:
    schema = Schema((Field("a", parse_type("INT")), Field("b", parse_type("STRING"))))
    options = {"mode": "PERMISSIVE"} | ({"multiline": "true", "ragged": "bad"} if csv and multiline else {})
    fmt = FORMATS["csv" if csv else "json"].make(schema, options)
    strict = FORMATS["csv" if csv else "json"].make(schema, {k: v for k, v in options.items() if k != "mode"})
    raw = b"".join((CSV_PIECES if csv else PIECES)[i] + b"\n" for i in chosen)
    index = fmt.index(raw, [0, 1], "o", 0)
    every = index.parse([0, 1])
    if not csv or multiline:  # without `multiline`, PERMISSIVE also takes other numbers of fields
        good = strict.decode(raw, [0, 1], "o", 0)
        blank = {b.row for b in index.bad}
        assert [r for i, r in enumerate(table(every)) if i not in blank] == table(good)
        assert all(table(every)[i] == [None, None] for i in blank)
        assert [(b.offset, b.reason) for b in index.bad] == [(b.offset, b.reason) for b in good.bad if b.column is None]
    late = fmt.index(raw, [], "o", 0)
    assert late.rows == index.rows
    rows = np.array(data.draw(st.lists(st.integers(0, index.rows - 1))) if index.rows else [], np.int64)
    assert table(late.parse([0, 1], rows)) == [table(every)[i] for i in rows]
