"""Prepared statements give what the plain text gives, and are planned once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pytest

from headrace.exec import duck, prepared
from headrace.exec.prepared import PreparedStatements
from headrace.model.program import Meaning
from headrace.sql import define_stream, parse_script, plan_on_shared_host
from headrace.state.catalog import Catalog

SQL = "SELECT k, sum(v) AS s FROM rows GROUP BY k ORDER BY k"


def rows(*pairs: tuple[str, int]) -> pa.Table:
    return pa.table({"k": [k for k, _ in pairs], "v": pa.array([v for _, v in pairs], pa.int64())})


class Spy:
    """A connection that writes down its statements."""

    def __init__(self) -> None:
        self.real: Any = duckdb.connect(":memory:", config={"threads": 1})
        self.ran: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def execute(self, sql: str) -> None:
        self.ran.append(sql.split()[0])
        self.real.execute(sql)


@pytest.fixture
def spy() -> Spy:
    return Spy()


@pytest.fixture
def kept(spy: Spy) -> PreparedStatements:
    return PreparedStatements(spy)  # type: ignore[arg-type]


def test_a_statement_is_prepared_when_it_comes_again_and_sees_the_rows_of_each_call(
    spy: Spy, kept: PreparedStatements
) -> None:
    for number in range(5):
        found = kept.run(SQL, {"rows": rows(("a", number), ("b", 1), ("a", 1))})
        assert found.to_pylist() == [{"k": "a", "s": number + 1}, {"k": "b", "s": 1}]
    assert spy.ran == ["PREPARE"]


def test_another_schema_of_a_relation_is_another_statement(kept: PreparedStatements) -> None:
    for number in range(3):
        assert kept.run(SQL, {"rows": rows(("a", number))}).column("s").to_pylist() == [number]
        other = pa.table({"k": [1, 2], "v": [0.5, 0.25], "more": ["x", "y"]})
        assert kept.run(SQL, {"rows": other}).to_pylist() == [{"k": 1, "s": 0.5}, {"k": 2, "s": 0.25}]


def test_two_relations_with_the_same_schema_keep_their_own_rows(kept: PreparedStatements) -> None:
    sql = "SELECT m.k FROM one m ANTI JOIN two d ON m.k = d.k"
    for number in range(3):
        one, two = rows(("a", 1), (f"b{number}", 1)), rows(("a", 5))
        assert kept.run(sql, {"one": one, "two": two}).column("k").to_pylist() == [f"b{number}"]


def test_a_statement_works_after_one_that_failed_on_its_rows(kept: PreparedStatements) -> None:
    sql = "SELECT CAST(k AS INTEGER) AS n FROM rows"
    for text in ("1", "2", "x", "3"):
        if text == "x":
            with pytest.raises(duckdb.ConversionException):
                kept.run(sql, {"rows": rows((text, 0))})
        else:
            assert kept.run(sql, {"rows": rows((text, 0))}).column("n").to_pylist() == [int(text)]


def test_old_statements_are_dropped(spy: Spy, kept: PreparedStatements, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "KEPT", 2)
    for number in (1, 1, 2, 2, 3, 3, 1, 1):
        found = kept.run(f"SELECT v + {number} AS n FROM rows", {"rows": rows(("a", 1))})
        assert found.column("n").to_pylist() == [1 + number]
    assert spy.ran.count("DEALLOCATE") == 2


def test_the_clock_of_an_epoch_is_read_again_in_every_call() -> None:
    meaning, sql = Meaning(), "SELECT k, getvariable('hr_now') AS now FROM rows"
    for now in range(4):
        duck.set_clock([meaning], now)
        assert duck.run(meaning, sql, {"rows": rows(("a", 1))}).column("now").to_pylist() == [now]


def test_the_date_and_the_reading_of_a_zone_are_read_again_in_every_call() -> None:
    stream = "CREATE STREAM s (k STRING) WITH (source = 'generator', format = 'json', rows = '1')"
    catalog = Catalog().with_stream(define_stream(parse_script(stream)[0], Meaning()))  # type: ignore[arg-type]
    (query,) = parse_script("SELECT current_date() AS day, localtimestamp() AS shown FROM s")
    meanings = [Meaning(), Meaning(time_zone="Asia/Tokyo"), Meaning(time_zone="America/New_York")]
    planned = [plan_on_shared_host(query, catalog, meaning) for meaning in meanings]  # type: ignore[arg-type]
    for hours in (0, 9, 14, 16, 29):
        now = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(hours=hours)  # New York's clock goes back at 6
        duck.set_clock(meanings, int(now.timestamp()) * 1_000_000)
        for meaning, plan in zip(meanings, planned, strict=True):
            sql = f"SELECT {duck.select_list(plan.program.ring0.outputs)} FROM rows"
            shown = now.astimezone(ZoneInfo(meaning.time_zone)).replace(tzinfo=None)
            assert duck.run(meaning, sql, {"rows": rows(("a", 1))}).to_pylist() == [
                {"day": shown.date(), "shown": shown}
            ]
