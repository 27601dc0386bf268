"""Writes the epochs of one sink to a table of PostgreSQL, exactly once.

**The ledger, and why it is exactly once.** The table `headrace_epochs`, in the schema of the target table, has one row
per (checkpoint, sink, instance, epoch). One transaction

1. inserts the epoch's row into the ledger, or finds it there,
2. unless it was there, copies the epoch's rows into the target table,
3. commits.

Rows and ledger become visible together or not at all. If the connection breaks during the commit, nobody knows whether
it happened: the epoch is delivered again and step 1 finds out. The primary key of the ledger makes a second delivery
wait for one that still runs, for example of a hub that was cut off, and one of them finds the other's row. The ledger
also has the digest of the epoch's input: if it is another one, EpochMismatch is raised and nothing is written.

The staged rows are durable until the transaction is committed (`headrace.sinks.staged_sink`), so no epoch is lost.

The ledger keeps the id of each transaction. `rewind` deletes the rows that the transactions of later epochs inserted:
PostgreSQL keeps that id with each row (`xmin`). Rows that were upserted are not deleted, because their older values are
gone; the pipeline writes the same keys again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import pyarrow as pa

from headrace.errors import (
    BadOption,
    EpochMismatch,
    MissingPackage,
    SinkFailed,
    SinkMismatch,
    SinkRefused,
    SinkUnavailable,
)
from headrace.model.schema import Schema
from headrace.sinks.postgres_types import accepts, becomes_json, column_type, sent_type
from headrace.sinks.sink_kind import Checkpoints, SinkKey, SinkWriter
from headrace.sinks.staged_sink import StagedRows

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection, Cursor

LEDGER = "headrace_epochs"
# How many epochs of an instance the ledger keeps: a savepoint can be restored that far back. At one epoch per second
# this is more than a day, in about 10 MB.
LEDGER_EPOCHS = 100_000
# A transaction id has 32 bits in a row. Beyond half of that, ids of old and new transactions cannot be distinguished.
_XID_HORIZON = 2**31
_ROWS = "headrace_rows"  # the temporary table for rows that are converted or merged
_ORDER = "headrace_order"
_PARAMETERS = {
    "connect_timeout": "10",
    "application_name": "headrace",
    "keepalives_idle": "30",
    "tcp_user_timeout": "60000",
}
# Classes and codes of errors that go away by themselves: connection, resources, a server that starts or stops, a
# conflict with another transaction, a standby that is about to be promoted. And a missing permission: a sink that stops
# misses rows, and a revoked permission may be granted again.
_DENIED = "42501"
_PASSING = ("08", "53", "57", "58", "40", "55P03", "25006", _DENIED)
# Errors about the shape of the table: undefined table or column, wrong type, no unique constraint for the key.
_SHAPE = ("42P01", "42703", "42804", "42846", "42P10", "3F000")
# The server refuses a connection with one of these words. There is no code in that phase.
_REFUSED = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied", "permission",
            "invalid ", "does not support SSL")  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableName:
    """A table, with its schema if the user named one."""

    schema: str
    name: str

    @staticmethod
    def parse(text: str) -> TableName:
        """`table` or `schema.table`, exactly as written: case matters."""
        schema, _, name = text.rpartition(".")
        if not name or "." in schema or (not schema and text.startswith(".")):
            raise BadOption(
                f"option 'table' of sink 'postgres' cannot be {text!r}",
                advice="It must be a table, or schema.table.",
                option="table",
                value=text,
            )
        return TableName(schema, name)

    @property
    def sql(self) -> str:
        return ".".join(quoted_name(part) for part in (self.schema, self.name) if part)

    def beside(self, name: str) -> TableName:
        """Another table in the same schema."""
        return TableName(self.schema, name)


def quoted_name(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


class PostgresTarget:
    """One connection, made on first use and again after an error. With a `key` rows are upserted."""

    def __init__(
        self,
        *,
        sink: str,
        url: str,
        password: str | None,
        table: TableName,
        output: Schema,
        key: Sequence[str],
        create: bool,
    ) -> None:
        self._sink, self._table, self._output, self._create = sink, table, output, create
        self._key, self._ledger = tuple(key), table.beside(LEDGER)
        self._url, self._place = with_password(url, password), urlsplit(url).netloc.rpartition("@")[2]
        self._connection: Connection | None = None

    # --- the promises of a target -----------------------------------------------------------------

    def deliver(self, key: SinkKey, rows: StagedRows, count: int) -> None:
        with self._transaction() as cursor:
            self._require_ledger(cursor)
            if self._entered(cursor, key, count):
                rows.require()
                columns = self._columns(cursor)
                if self._key or not all(accepts(columns[f.name], f.type) for f in self._output):
                    self._merge(cursor, rows)
                else:
                    self._ingest(cursor, self._table, rows)
                if key.epoch % 1000 == 0:
                    self._prune(cursor, key)

    def writers(self, checkpoints: Checkpoints) -> set[SinkWriter]:
        with self._transaction() as cursor:
            if not self._exists(cursor, self._ledger):
                return set()
            sql = f"SELECT DISTINCT checkpoint, instance FROM {self._ledger.sql} WHERE sink = $1"
            found = _answer(cursor, sql, (self._sink,))
            return {(str(c), int(instance)) for c, instance in found if c in checkpoints(int(instance))}

    def ahead(self, key: SinkKey) -> int:
        with self._transaction() as cursor:
            if not self._exists(cursor, self._ledger):
                return 0
            (found,) = _answer(
                cursor, f"SELECT count(*) FROM {self._ledger.sql} WHERE {_LATER}", _parameters(key, self._sink)
            )
            return int(found[0])

    def rewind(self, key: SinkKey) -> None:
        given = _parameters(key, self._sink)
        with self._transaction() as cursor:
            if not self._exists(cursor, self._ledger):
                return
            if not self._key and self._exists(cursor, self._table):
                later = f"FROM {self._ledger.sql} WHERE {_LATER}"
                ((old,),) = _answer(
                    cursor,
                    "SELECT coalesce(max(pg_current_xact_id()::text::numeric - xid::text::numeric), 0) > "
                    f"{_XID_HORIZON} {later}",
                    given,
                )
                if old:
                    raise SinkRefused(
                        f"the rows that sink {self._sink} wrote after epoch {key.epoch} are too old to be found again",
                        advice="Restore the database to the time of the savepoint.",
                        sink=self._sink,
                    )
                cursor.execute(
                    f"DELETE FROM {self._table.sql} WHERE xmin::text::bigint IN "
                    f"(SELECT mod(xid::text::numeric, 4294967296)::bigint {later})",
                    given,
                )
            cursor.execute(f"DELETE FROM {self._ledger.sql} WHERE {_LATER}", given)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):  # the server may have closed it
                connection.close()

    # --- steps ------------------------------------------------------------------------------------

    def _entered(self, cursor: Cursor, key: SinkKey, count: int) -> bool:
        """Enter the epoch into the ledger. False if it was there."""
        names = "checkpoint, sink, instance, epoch, digest, rows"
        entered = _answer(
            cursor,
            f"INSERT INTO {self._ledger.sql} ({names}) VALUES ($1, $2, $3, $4, $5, $6) "
            "ON CONFLICT DO NOTHING RETURNING epoch",
            (*_parameters(key, self._sink), key.digest, count),
        )
        if entered:
            return True
        ((digest,),) = _answer(
            cursor,
            f"SELECT digest FROM {self._ledger.sql} "
            "WHERE checkpoint = $1 AND sink = $2 AND instance = $3 AND epoch = $4",
            _parameters(key, self._sink),
        )
        if key.digest and digest not in ("", key.digest):
            raise EpochMismatch(
                f"table {self._table.sql} has epoch {key.epoch} of sink {self._sink} with other input",
                advice="Nothing was written. Spark's checkpoint and the table do not match: the checkpoint was partly "
                "lost or replaced by hand. Restore a savepoint with --rewind, or drop the stream and create it again.",
                sink=self._sink,
                epoch=key.epoch,
            )
        return False

    def _columns(self, cursor: Cursor) -> dict[str, str]:
        """The types of the table's columns, without modifiers. Creates the table if that was asked for."""
        found = self._described(cursor)
        if not found and self._create:
            columns = ", ".join(f"{quoted_name(f.name)} {column_type(f.type)}" for f in self._output)
            unique = f", UNIQUE{self._null_is_a_key(cursor)} ({_list(self._key)})" if self._key else ""
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {self._table.sql} ({columns}{unique})")
            found = self._described(cursor)
        if not found:
            raise SinkMismatch(
                f"sink {self._sink} writes to table {self._table.sql}, which does not exist",
                advice="Create it, or set create_table = 'true'. Then start the pipeline again.",
                sink=self._sink,
                table=self._table.sql,
            )
        if missing := [f for f in self._output if f.name not in found]:
            needed = ", ".join(f"{quoted_name(f.name)} {column_type(f.type)}" for f in missing)
            raise SinkMismatch(
                f"table {self._table.sql} of sink {self._sink} lacks the columns {needed}",
                advice="Add them, or write to another table. Then start the pipeline again: nothing is lost.",
                sink=self._sink,
                table=self._table.sql,
                column=missing[0].name,
            )
        return found

    def _described(self, cursor: Cursor) -> dict[str, str]:
        rows = _answer(
            cursor,
            "SELECT attname::text, format_type(atttypid, NULL) FROM pg_attribute "
            "WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
            (self._table.sql,),
        )
        return {str(name): str(kind) for name, kind in rows}

    def _ingest(self, cursor: Cursor, table: TableName, rows: StagedRows) -> None:
        schema = pa.schema(
            [pa.field(f.name, pa.string() if becomes_json(f.type.arrow) else f.type.arrow) for f in self._output]
        )
        reader = pa.RecordBatchReader.from_batches(schema, rows.batches())
        temporary = table.name == _ROWS
        where = {"temporary": True} if temporary else {"db_schema_name": table.schema or None}
        cursor.adbc_ingest(table.name, reader, mode="append", **where)

    def _merge(self, cursor: Cursor, rows: StagedRows) -> None:
        """Copy the rows into a temporary table, which converts their types, and insert them from there. If an epoch has
        several rows of one key, the last one stays."""
        columns = ", ".join(f"{quoted_name(f.name)} {sent_type(f.type)}" for f in self._output)
        ordered = f"{columns}, {_ORDER} bigint GENERATED ALWAYS AS IDENTITY"
        cursor.execute(f"CREATE TEMPORARY TABLE {_ROWS} ({ordered}) ON COMMIT DROP")
        self._ingest(cursor, TableName("", _ROWS), rows)
        names, types = _list(self._output.names), self._exact_types(cursor)
        chosen = ", ".join(f"{quoted_name(n)}::{types[n]}" for n in self._output.names)
        if not self._key:
            cursor.execute(f"INSERT INTO {self._table.sql} ({names}) SELECT {chosen} FROM {_ROWS} ORDER BY {_ORDER}")
            return
        key = _list(self._key)
        self._refuse_null_keys(cursor)
        others = [n for n in self._output.names if n not in self._key]
        changed = ", ".join(f"{quoted_name(n)} = excluded.{quoted_name(n)}" for n in others)
        cursor.execute(
            f"INSERT INTO {self._table.sql} ({names}) SELECT DISTINCT ON ({key}) {chosen} FROM {_ROWS} "
            f"ORDER BY {key}, {_ORDER} DESC ON CONFLICT ({key}) DO "
            + (f"UPDATE SET {changed}" if changed else "NOTHING")
        )

    def _exact_types(self, cursor: Cursor) -> dict[str, str]:
        """The types of the table's columns with their modifiers."""
        rows = _answer(
            cursor,
            "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
            (self._table.sql,),
        )
        return {str(name): str(kind) for name, kind in rows}

    def _refuse_null_keys(self, cursor: Cursor) -> None:
        """A unique index takes any number of NULLs, unless it says otherwise: rows with a NULL in the key would be
        inserted again in every epoch."""
        null = " OR ".join(f"{quoted_name(n)} IS NULL" for n in self._key)
        if not _answer(cursor, f"SELECT 1 FROM {_ROWS} WHERE {null} LIMIT 1"):
            return
        if self._null_is_a_key(cursor) and _answer(
            cursor,
            "SELECT 1 FROM pg_index WHERE indrelid = to_regclass($1) AND indisunique AND indnullsnotdistinct LIMIT 1",
            (self._table.sql,),
        ):
            return
        raise SinkRefused(
            f"a row for table {self._table.sql} has NULL in its key, which its unique constraint does not compare",
            advice="Make the constraint UNIQUE NULLS NOT DISTINCT (PostgreSQL 15), or leave such rows out.",
            sink=self._sink,
        )

    def _null_is_a_key(self, cursor: Cursor) -> str:
        """The words that make a unique constraint compare NULLs; empty before PostgreSQL 15."""
        ((version,),) = _answer(cursor, "SELECT current_setting('server_version_num')::int")
        return " NULLS NOT DISTINCT" if version >= 150_000 else ""

    def _require_ledger(self, cursor: Cursor) -> None:
        if not self._exists(cursor, self._ledger):
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self._ledger.sql} (checkpoint text, sink text, instance bigint, "
                "epoch bigint, digest text NOT NULL, rows bigint NOT NULL, xid xid8 NOT NULL DEFAULT "
                "pg_current_xact_id(), at timestamptz NOT NULL DEFAULT now(), "
                "PRIMARY KEY (checkpoint, sink, instance, epoch))"
            )

    def _exists(self, cursor: Cursor, table: TableName) -> bool:
        ((found,),) = _answer(cursor, "SELECT to_regclass($1) IS NOT NULL", (table.sql,))
        return bool(found)

    def _prune(self, cursor: Cursor, key: SinkKey) -> None:
        checkpoint, sink, instance, epoch = _parameters(key, self._sink)
        cursor.execute(
            f"DELETE FROM {self._ledger.sql} WHERE checkpoint = $1 AND sink = $2 AND instance = $3 AND epoch < $4",
            (checkpoint, sink, instance, epoch - LEDGER_EPOCHS),
        )

    # --- the connection ---------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[Cursor]:
        """A transaction, committed at the end of the block. Errors of the server become coded errors, and the
        connection is closed, which rolls back."""
        driver = driver_package()
        try:
            if self._connection is None:
                self._connection = driver.connect(self._url, autocommit=False)
            with self._connection.cursor() as cursor:
                yield cursor
            self._connection.commit()
        except driver.Error as problem:
            self.close()
            self._raise(problem)
        except BaseException:
            self.close()
            raise

    def _raise(self, problem: Any) -> NoReturn:
        state, said = problem.sqlstate or "", " ".join(str(problem).split())
        message = f"sink {self._sink} cannot write to table {self._table.sql} at {self._place}: {said}"
        params: dict[str, Any] = {"sink": self._sink, "table": self._table.sql, "sqlstate": state}
        if state.startswith(_PASSING) or (not state and not any(word in said for word in _REFUSED)):
            remedy = "GRANT it to this user" if state == _DENIED else "Check that the server runs and can be reached"
            raise SinkUnavailable(
                message,
                advice=f"{remedy}. The stream then continues by itself, and nothing is lost. STOP PIPELINE ... NOW or "
                "DROP PIPELINE lets the other pipelines continue without it.",
                **params,
            ) from problem
        kind: type[SinkFailed] = SinkMismatch if state in _SHAPE else SinkRefused
        raise kind(
            message,
            advice="Correct the table, the permission or the password. Then start the pipeline again: the sink writes "
            "this epoch first.",
            **params,
        ) from problem


_LATER = "checkpoint = $1 AND sink = $2 AND instance = $3 AND epoch > $4"


def _parameters(key: SinkKey, sink: str) -> tuple[str, str, int, int]:
    return key.checkpoint, sink, key.instance, key.epoch


def _answer(cursor: Cursor, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    cursor.execute(sql, parameters or None)
    return cursor.fetchall()


def _list(names: Sequence[str]) -> str:
    return ", ".join(quoted_name(name) for name in names)


def with_password(url: str, password: str | None) -> str:
    """The address for the driver, with the password and with limits for a server that does not answer."""
    parts = urlsplit(url)
    user, _, place = parts.netloc.rpartition("@")
    who = f"{user}:{quote(password, safe='')}@" if password and user else f"{user}@" if user else ""
    query = {**_PARAMETERS, **dict(parse_qsl(parts.query))} | ({"password": password} if password and not user else {})
    return urlunsplit(parts._replace(netloc=who + place, query=urlencode(query)))


def driver_package() -> Any:
    """The package that talks to the server. Raises MissingPackage."""
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as problem:
        raise MissingPackage(
            f"sink 'postgres' needs a package that is not installed here: {problem}",
            advice="pip install 'headrace[postgres]'",
            package="adbc-driver-postgresql",
        ) from problem
    return dbapi
