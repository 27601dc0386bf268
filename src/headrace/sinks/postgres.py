"""The postgres sink: appends rows to a table of PostgreSQL, or inserts and updates them by key.

Unit of commit: the epoch. Guarantee: exactly once, by a ledger in the same transaction
(`headrace.sinks.postgres_target`). Only the driver connects to the server, so tasks need neither the password nor
access to the server. `docs/design/2026-11-17-postgres-sink.md` says why, and why rows travel by ADBC.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from headrace.base.options import boolean, choice, option, text
from headrace.errors import BadOption, MissingOption
from headrace.model.definitions import SinkDef
from headrace.model.schema import Schema
from headrace.sinks.file_sink import FileTask
from headrace.sinks.partitions import column_names, require_columns
from headrace.sinks.postgres_target import PostgresTarget, TableName, driver_package
from headrace.sinks.postgres_types import prepared
from headrace.sinks.sink_kind import SinkKind
from headrace.sinks.staged_sink import StagedSettings, StagedSink, check_staging, staged_task

_GUARANTEE = "exactly once: rows and the number of the epoch are one transaction"


@dataclass(frozen=True, slots=True)
class PostgresSettings(StagedSettings):
    """The options of `type = 'postgres'`."""

    url: str = option(text, required=True, help="postgresql://user@host:port/database, without a password")
    table: str = option(text, required=True, help="the table, or schema.table")
    password: str = option(text, secret=True, help="the password; stored apart from the declaration, and never shown")
    mode: Literal["append", "upsert"] = option(
        choice("append", "upsert"), default="append", help="append (default), or upsert: insert or update by `key`"
    )
    key: tuple[str, ...] = option(column_names, default=(), help="the columns that identify a row, for upsert")
    create_table: bool = option(boolean, default=False, help="create the table if it does not exist (default false)")


def _check(settings: PostgresSettings) -> None:
    check_staging(settings)
    address = urlsplit(settings.url)
    if address.scheme not in ("postgresql", "postgres") or not address.path.strip("/"):
        raise BadOption(
            "option 'url' of sink 'postgres' is not the address of a database",
            advice="It must be like postgresql://user@host:5432/database.",
            option="url",
        )
    if address.password is not None or "password=" in address.query:
        raise BadOption(
            "option 'url' of sink 'postgres' has a password in it, which would be stored and shown",
            advice="Set it with the option 'password', which is stored apart.",
            option="url",
        )
    if settings.mode == "upsert" and not settings.key:
        raise MissingOption(
            "mode = 'upsert' needs the option 'key'",
            advice="Name the columns that identify a row, such as the columns of GROUP BY.",
            option="mode",
        )
    if settings.mode == "append" and settings.key:
        raise BadOption(
            "option 'key' has no effect without mode = 'upsert'",
            advice="Set mode = 'upsert', or remove key.",
            option="key",
        )
    TableName.parse(settings.table)
    driver_package()


def _check_output(sink: str, settings: PostgresSettings, output: Schema) -> None:
    require_columns(sink, "key", settings.key, output)


def _task(sink: SinkDef, settings: PostgresSettings) -> FileTask:
    return staged_task(sink.name, settings, prepared)


def _driver(sink: SinkDef, settings: PostgresSettings, output: Schema) -> StagedSink:
    target = PostgresTarget(
        sink=sink.name,
        url=settings.url,
        password=settings.password,
        table=TableName.parse(settings.table),
        output=output,
        key=settings.key,
        create=settings.create_table,
    )
    return StagedSink(Path(settings.staging), sink.name, _GUARANTEE, target)


POSTGRES = SinkKind(
    name="postgres",
    help="appends rows to a table of PostgreSQL, or inserts and updates them by key",
    guarantee=_GUARANTEE,
    settings=PostgresSettings,
    make_task=_task,
    make_driver=_driver,
    check_settings=_check,
    check_output=_check_output,
    paths=("staging",),
)
