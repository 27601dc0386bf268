"""The postgres sink on a real server: exactly once, whatever fails, and coded errors for what a user can get wrong."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import (
    BadOption,
    EpochMismatch,
    HeadraceError,
    MissingOption,
    SinkMismatch,
    SinkRefused,
    SinkUnavailable,
    StateDamaged,
)
from headrace.model.definitions import SinkDef
from headrace.model.schema import BIGINT, STRING, Field, Schema, parse_type
from headrace.sinks import SINKS, SinkKey, Staged
from headrace.sinks.postgres_target import PostgresTarget
from tests.connectors.postgresql import PASSWORD, PostgresServer, ServerMissing
from tests.connectors.servers import free_port, missing

OUTPUT = Schema((Field("k", STRING), Field("n", BIGINT)))
_names = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    try:
        found = PostgresServer()
    except (ServerMissing, ImportError) as problem:
        missing(str(problem))
    yield found
    found.remove()


def rows(*pairs: tuple[str | None, int]) -> pa.Table:
    return pa.table(
        {"k": pa.array([k for k, _ in pairs], pa.string()), "n": pa.array([n for _, n in pairs], pa.int64())}
    )


class Writer:
    """One pipeline's use of a table: stages in tasks, commits in the driver. A new driver side for each commit is what
    a restarted hub has."""

    def __init__(self, server: PostgresServer, staging: Path, output: Schema = OUTPUT, **options: str) -> None:
        self.server, self.output = server, output
        self.table = options.pop("table", f"t{next(_names)}")
        given = {"url": server.url, "password": PASSWORD, "table": self.table, "create_table": "true"} | options
        self.sink = SinkDef("out", "postgres", {"staging": str(staging), **given})

    def stage(self, epoch: int, *tables: pa.Table) -> list[Staged]:
        task = SINKS["postgres"].task(self.sink)
        return [task.stage(table, self.key(epoch)) for table in tables]

    def key(self, epoch: int, digest: str = "d") -> SinkKey:
        return SinkKey(f"checkpoint of {self.table}", 1, epoch, digest)

    def driver(self) -> Any:
        return SINKS["postgres"].driver(self.sink, self.output)

    def run(self, epoch: int, *tables: pa.Table) -> int:
        driver = self.driver()
        try:
            done: int = driver.commit(self.key(epoch), self.stage(epoch, *tables))
            return done
        finally:
            driver.close()

    def settle(self, epoch: int) -> int:
        """Commit an epoch that is owed, after a restart."""
        driver = self.driver()
        try:
            assert driver.committed(self.key(epoch))  # it is owed, not lost
            done: int = driver.commit(self.key(epoch, ""), [])
            return done
        finally:
            driver.close()

    def shown(self) -> list[tuple[Any, ...]]:
        return sorted(self.server.sql(f'SELECT * FROM "{self.table}"'), key=repr)


@pytest.fixture
def writer(server: PostgresServer, tmp_path: Path) -> Writer:
    return Writer(server, tmp_path)


def test_epochs_are_appended_once_however_often_they_run(writer: Writer) -> None:
    assert writer.run(0, rows(("a", 1), (None, 2)), rows(("b", 3))) == 3
    assert writer.run(0, rows(("b", 3)), rows((None, 2), ("a", 1))) == 3
    assert writer.run(1, rows(("c", 4))) == 1
    assert writer.shown() == [("a", 1), ("b", 3), ("c", 4), (None, 2)]


def test_the_ledger_alone_prevents_a_second_copy(writer: Writer, tmp_path: Path) -> None:
    writer.run(0, rows(("a", 1)))
    elsewhere = Writer(writer.server, tmp_path / "another state", table=writer.table)
    assert elsewhere.run(0, rows(("a", 1))) == 1
    assert writer.shown() == [("a", 1)]
    with pytest.raises(EpochMismatch):
        elsewhere.driver().commit(elsewhere.key(0, "other"), elsewhere.stage(0, rows(("b", 2))))
    assert writer.shown() == [("a", 1)]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=4))
@settings(max_examples=4, deadline=None)
def test_a_death_between_any_two_steps_loses_and_doubles_nothing(
    server: PostgresServer, tmp_path_factory: pytest.TempPathFactory, history: list[tuple[int, int]]
) -> None:
    """Each epoch has some rows, and dies once at one of the places: staged, manifest, rows sent, committed."""
    writer = Writer(server, tmp_path_factory.mktemp("staging"))
    expected = []
    for epoch, (count, place) in enumerate(history):
        given_rows = rows(*((f"e{epoch}", i) for i in range(count)))
        expected += [(f"e{epoch}", i) for i in range(count)]
        with pytest.MonkeyPatch.context() as patch, pytest.raises(_Death):
            _die_at(patch, place)
            writer.run(epoch, given_rows)
        assert writer.run(epoch, given_rows) == count
        assert writer.shown() == sorted(expected, key=repr)


class _Death(BaseException):
    """No error handling catches it."""


def _die_at(patch: pytest.MonkeyPatch, place: int) -> None:
    def die(*_: Any, **__: Any) -> Any:
        raise _Death

    if place == 0:
        patch.setattr("headrace.sinks.file_sink.FileSink._write_manifest", die)
    elif place == 1:
        patch.setattr("headrace.sinks.file_sink.fault_point", die)
    elif place == 2:
        sent = PostgresTarget._ingest

        def ingest(self: PostgresTarget, *args: Any) -> None:
            sent(self, *args)
            die()

        patch.setattr(PostgresTarget, "_ingest", ingest)
    else:
        patch.setattr("headrace.sinks.staged_sink.fault_point", die)


def test_upsert_keeps_the_newest_row_of_each_key_and_null_is_a_key(server: PostgresServer, tmp_path: Path) -> None:
    writer = Writer(server, tmp_path, mode="upsert", key="k")
    writer.run(0, rows(("a", 1), ("b", 2), ("a", 3)), rows((None, 5)))
    writer.run(1, rows((None, 6), ("b", 7)))
    writer.run(1, rows((None, 6), ("b", 7)))
    assert writer.shown() == [("a", 3), ("b", 7), (None, 6)]


def test_upsert_refuses_null_in_a_key_that_the_table_does_not_compare(server: PostgresServer, tmp_path: Path) -> None:
    writer = Writer(server, tmp_path, mode="upsert", key="k")
    server.sql(f"CREATE TABLE {writer.table} (k text UNIQUE, n bigint)")
    writer.run(0, rows(("a", 1)))
    with pytest.raises(SinkRefused):
        writer.run(1, rows((None, 1)))


def test_upsert_without_a_unique_constraint_is_a_mismatch(server: PostgresServer, tmp_path: Path) -> None:
    writer = Writer(server, tmp_path, mode="upsert", key="k")
    server.sql(f"CREATE TABLE {writer.table} (k text, n bigint)")
    with pytest.raises(SinkMismatch):
        writer.run(0, rows(("a", 1)))


def test_every_type_arrives_as_documented(server: PostgresServer, tmp_path: Path) -> None:
    moment = datetime(2024, 2, 29, 1, 2, 3, 456789)
    values: dict[str, tuple[str, Any]] = {
        "BOOLEAN": ("boolean", True),
        "TINYINT": ("smallint", -128),
        "SMALLINT": ("smallint", 2**15 - 1),
        "INT": ("integer", -(2**31)),
        "BIGINT": ("bigint", 2**63 - 1),
        "FLOAT": ("real", 0.5),
        "DOUBLE": ("double precision", float("inf")),
        "DECIMAL(20,3)": ("numeric(20,3)", Decimal("-12345678901234567.125")),
        "STRING": ("text", "ä'\"\\,\n\0."),
        "BINARY": ("bytea", b"\0\xff"),
        "DATE": ("date", date(1582, 10, 15)),
        "TIMESTAMP": ("timestamp with time zone", moment.replace(tzinfo=UTC)),
        "TIMESTAMP_NTZ": ("timestamp without time zone", moment),
        "ARRAY<INT>": ("integer[]", [1, None, 3]),
        "ARRAY<STRING>": ("text[]", ["a", None, "b\0"]),
        "STRUCT<a: INT, b: STRING>": ("jsonb", {"a": 1, "b": None}),
        "MAP<STRING, INT>": ("jsonb", [("x", 1)]),
        "ARRAY<STRUCT<a: INT>>": ("jsonb", [{"a": 1}]),
    }
    output = Schema(tuple(Field(f"c{i}", parse_type(name)) for i, name in enumerate(values)))
    table = pa.table(
        [pa.array([value, None], f.type.arrow) for f, (_, value) in zip(output, values.values(), strict=True)],
        names=list(output.names),
    )
    writer = Writer(server, tmp_path, output)
    assert writer.run(0, table) == 2
    types = server.sql(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
        f"WHERE attrelid = '{writer.table}'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert [t for (t,) in types] == [column for column, _ in values.values()]
    texts = ", ".join(f"c{i}" + ("::text" if i > 14 or i == 7 else "") for i in range(len(values)))
    full, empty = server.sql(f"SELECT {texts} FROM {writer.table} ORDER BY c0 NULLS LAST")
    assert empty == (None,) * len(values)
    wanted = [value for _, value in values.values()]
    wanted[7:9] = ["-12345678901234567.125", "ä'\"\\,\n\ufffd."]
    wanted[14:] = [["a", None, "b\ufffd"], '{"a": 1, "b": null}', '{"x": 1}', '[{"a": 1}]']
    assert list(full) == wanted


def test_rows_are_converted_to_the_types_of_a_table_that_exists(server: PostgresServer, tmp_path: Path) -> None:
    writer = Writer(server, tmp_path)
    server.sql(f"CREATE TABLE {writer.table} (extra int DEFAULT 7, n numeric(9,1), k varchar(3))")
    writer.run(0, rows(("abc", 12)))
    assert server.sql(f"SELECT extra, n::text, k FROM {writer.table}") == [(7, "12.0", "abc")]


def test_a_table_that_lacks_a_column_is_named_and_the_epoch_waits_for_it(writer: Writer) -> None:
    writer.server.sql(f"CREATE TABLE {writer.table} (k text)")
    with pytest.raises(SinkMismatch) as caught:
        writer.run(0, rows(("a", 1)))
    assert caught.value.params["column"] == "n" and not caught.value.retry_helps
    writer.server.sql(f"ALTER TABLE {writer.table} ADD n bigint")
    assert writer.settle(0) == 1
    assert writer.shown() == [("a", 1)]


def test_a_table_that_does_not_exist_is_only_created_when_asked_for(server: PostgresServer, tmp_path: Path) -> None:
    with pytest.raises(SinkMismatch):
        Writer(server, tmp_path, create_table="false").run(0, rows(("a", 1)))
    with pytest.raises(SinkMismatch):
        Writer(server, tmp_path, table="no_schema.t").run(0, rows(("a", 1)))


def test_a_value_that_the_table_does_not_take_is_refused_and_nothing_of_the_epoch_is_shown(writer: Writer) -> None:
    writer.server.sql(f"CREATE TABLE {writer.table} (k text, n bigint CHECK (n < 10))")
    with pytest.raises(SinkRefused) as caught:
        writer.run(0, rows(("a", 1), ("b", 11)))
    assert caught.value.params["sqlstate"] == "23514"
    assert writer.shown() == [] and writer.server.sql("SELECT count(*) FROM headrace_epochs WHERE digest = 'x'") == [
        (0,)
    ]


def test_wrong_credentials_are_refused_and_a_revoked_permission_is_waited_for(
    server: PostgresServer, tmp_path: Path
) -> None:
    for url, password in ((server.url, "wrong"), (server.url.replace("tester", "nobody"), PASSWORD)):
        with pytest.raises(SinkRefused) as caught:
            Writer(server, tmp_path / "a", url=url, password=password).run(0, rows(("a", 1)))
        assert not caught.value.retry_helps and PASSWORD not in caught.value.render()
    with pytest.raises(SinkRefused):
        Writer(server, tmp_path / "b", url=server.url.replace("/postgres", "/nowhere")).run(0, rows(("a", 1)))
    writer = Writer(server, tmp_path / "c", url=server.url.replace("tester", "weak"), password="w")
    server.sql("CREATE ROLE weak LOGIN PASSWORD 'w'")
    server.sql(f"CREATE TABLE {writer.table} (k text, n bigint)")
    Writer(server, tmp_path / "d").run(0, rows(("a", 1)))  # makes the ledger
    server.sql(f"GRANT ALL ON headrace_epochs, {writer.table} TO weak")
    writer.run(7, rows(("a", 1)))
    server.sql(f"REVOKE INSERT ON {writer.table} FROM weak")
    with pytest.raises(SinkUnavailable) as waiting:
        writer.run(8, rows(("b", 2)))
    assert waiting.value.params["sqlstate"] == "42501" and "GRANT" in waiting.value.advice
    server.sql(f"GRANT INSERT ON {writer.table} TO weak")
    assert writer.settle(8) == 1
    assert writer.shown() == [("a", 1), ("b", 2)]


def test_a_server_that_is_down_is_waited_for_and_gets_every_epoch_once(tmp_path: Path) -> None:
    try:
        server = PostgresServer()
    except (ServerMissing, ImportError) as problem:
        missing(str(problem))
    try:
        writer = Writer(server, tmp_path)
        driver = writer.driver()
        driver.commit(writer.key(0), writer.stage(0, rows(("a", 1))))
        server.stop()
        for _ in range(2):  # the connection that broke, then one that cannot be made
            with pytest.raises(SinkUnavailable):
                driver.commit(writer.key(1), writer.stage(1, rows(("b", 2))))
        server.start()
        assert driver.commit(writer.key(1), []) == 1
        assert writer.shown() == [("a", 1), ("b", 2)]
        driver.close()
    finally:
        server.remove()


def test_nobody_listens_at_the_address(tmp_path: Path) -> None:
    sink = {"url": f"postgresql://u@127.0.0.1:{free_port()}/d", "table": "t", "staging": str(tmp_path)}
    try:
        driver = SINKS["postgres"].driver(SinkDef("out", "postgres", sink), OUTPUT)
        with pytest.raises(SinkUnavailable):
            driver.ahead(SinkKey("c", 1, 0))
    except ImportError as problem:
        missing(str(problem))


def test_a_rewind_removes_exactly_the_rows_of_later_epochs(writer: Writer) -> None:
    writer.server.sql(f"CREATE TABLE {writer.table} (k text, n bigint)")
    writer.server.sql(f"INSERT INTO {writer.table} VALUES ('mine', 0)")
    for epoch in range(4):
        writer.run(epoch, rows((f"e{epoch}", epoch)))
    driver = writer.driver()
    assert driver.ahead(writer.key(1)) >= 2
    driver.rewind(writer.key(1))
    assert driver.ahead(writer.key(1)) == 0
    assert [k for k, _ in writer.shown()] == ["e0", "e1", "mine"]
    writer.run(2, rows(("again", 2)))
    assert [k for k, _ in writer.shown()] == ["again", "e0", "e1", "mine"]
    driver.close()


def test_rows_that_were_deleted_before_they_were_delivered_are_missed(writer: Writer, tmp_path: Path) -> None:
    writer.server.sql(f"CREATE TABLE {writer.table} (k text)")
    with pytest.raises(SinkMismatch):
        writer.run(0, rows(("a", 1)))
    writer.server.sql(f"ALTER TABLE {writer.table} ADD n bigint")
    for staged in (tmp_path / "_headrace" / "staging").rglob("*.staged"):
        staged.unlink()
    with pytest.raises(StateDamaged):
        writer.settle(0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"url": "mysql://u@h/d"}, BadOption),
        ({"url": "postgresql://u@h"}, BadOption),
        ({"url": "postgresql://u:pw-in-it@h/d"}, BadOption),
        ({"table": "a.b.c"}, BadOption),
        ({"mode": "upsert"}, MissingOption),
        ({"key": "k"}, BadOption),
        ({"mode": "upsert", "key": "k,,n"}, BadOption),
    ],
)
def test_options_that_cannot_work_are_refused_when_the_sink_is_created(
    options: dict[str, str], error: type[HeadraceError]
) -> None:
    with pytest.raises(error) as caught:
        SINKS["postgres"].check({"url": "postgresql://u@h/d", "table": "t", **options})
    assert "pw-in-it" not in caught.value.render()
