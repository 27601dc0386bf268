"""The delta sink: appends to a Delta Lake table, exactly once.

Unit of commit: the epoch. Tasks stage Parquet files as every file sink does (`headrace.sinks.file_sink`). Where that
gives them their visible names, this sink moves them into the table and commits a transaction that adds them.
Before that, nobody reads them: readers of Delta tables open only files that the log names.

**Why it is exactly once.** The transaction carries the application transaction id (checkpoint, sink, instance) with the
epoch as its version. A re-run of the epoch finds that version in the log and adds nothing. If two processes commit the
same epoch at once, the log accepts one, and the other fails because of the application id: it looks again, and finds
the epoch. The manifest is durable before the transaction and is kept after it, so the epoch is neither lost nor
mistaken for another.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.base.faults import fault_point
from headrace.errors import MissingPackage, SinkFailed, SinkMismatch, SinkRefused
from headrace.model.definitions import SinkDef
from headrace.model.schema import Schema
from headrace.sinks.file_sink import FileSink, FileTask
from headrace.sinks.outputs import FileOutput, output_of
from headrace.sinks.parquet import ParquetSettings, write_parquet
from headrace.sinks.partitions import DEFAULT
from headrace.sinks.sink_kind import SinkKey, SinkKind
from headrace.sinks.sink_paths import STORE_SECRETS, check_file_output, check_path, writing
from headrace.stores.object_store import ANSWER_SECONDS, CONNECT_SECONDS, coded_store_error
from headrace.stores.store_options import AZURE, GCS, S3, StoreAccess, is_remote

if TYPE_CHECKING:
    from deltalake import DeltaTable

_GUARANTEE = "exactly once: each epoch is one transaction with its own application id and version"


@dataclass(frozen=True, slots=True)
class DeltaSettings(ParquetSettings):
    """The options of `type = 'delta'`."""


class DeltaSink(FileSink):
    """The driver side; see the module."""

    guarantee = _GUARANTEE

    def __init__(
        self,
        root: Path | FileOutput,
        sink: str,
        partition_by: tuple[str, ...],
        output: Schema,
        options: dict[str, str] | None = None,
    ) -> None:
        """`options` are those of delta-rs for a table on an object store."""
        super().__init__(root, sink, "parquet")
        self._partition_by, self._schema = list(partition_by), output.arrow
        self._uri, self._options = self.output.shown, options

    def ahead(self, key: SinkKey) -> int:
        with self._talking():
            table = self._table()
            version = -1 if table is None else self._version(table, key)
            return super().ahead(key) or int(version > key.epoch)

    def rewind(self, key: SinkKey) -> None:
        """Takes the files of later epochs out of the table first: while the log has them, `ahead` counts them."""
        with self._talking():
            table = self._table()
            if table is not None and self._version(table, key) > key.epoch:
                self._take_out(table, key, {name for name, epoch in self._shown(key) if epoch > key.epoch})
        super().rewind(key)

    def _take_out(self, table: DeltaTable, key: SinkKey, later: set[str]) -> None:
        from deltalake.transaction import RemoveAction

        paths: list[Any] = pa.table(table.get_add_actions()).column("path").to_pylist()
        names = {unquote(path) for path in paths}
        if lost := sorted(name for name in later if unquote(name) not in names):
            raise SinkRefused(
                f"the rows of {lost[0]}, written after epoch {key.epoch}, were rewritten by another writer",
                advice="Restore the table to the version of the savepoint with RESTORE TABLE, without the sink.",
                sink=self.paths.sink,
            )
        now = int(time.time() * 1000)
        self._commit_actions(table, key, [RemoveAction(name, True, now) for name in sorted(later)])

    def _roll_forward(self, key: SinkKey, files: Mapping[str, str], rows: int) -> None:
        with self._talking():
            table = self._table() or self._created()
            if self._version(table, key) >= key.epoch:
                return
            self._require_fit(table)
            super()._roll_forward(key, files, rows)
            fault_point("between-renames-and-log")
            self._commit_actions(table, key, [self._added(name) for name in files.values()])

    def _commit_actions(self, table: DeltaTable, key: SinkKey, actions: list[Any]) -> None:
        from deltalake import CommitProperties, Transaction

        properties = CommitProperties(app_transactions=[Transaction(self._application(key), key.epoch)])
        table.create_write_transaction(
            actions, "append", self._schema, partition_by=self._partition_by, commit_properties=properties
        )

    def _added(self, name: str) -> Any:
        from deltalake.transaction import AddAction

        with self.output.local([name]) as (path,):
            rows = pq.read_metadata(path).num_rows
        values = [part.partition("=")[2] for part in name.split("/")[:-1]]
        partition = {
            column: None if value == DEFAULT else unquote(value)
            for column, value in zip(self._partition_by, values, strict=True)
        }
        found = self.output.info(name)
        return AddAction(name, found.size, partition, int(found.mtime * 1000), True, json.dumps({"numRecords": rows}))

    def _application(self, key: SinkKey) -> str:
        return f"headrace-{self.paths.writer(key)}-{key.instance}"

    def _version(self, table: DeltaTable, key: SinkKey) -> int:
        """The newest epoch of this instance in the table; -1 before the first."""
        found = table.transaction_version(self._application(key))
        return -1 if found is None else int(found)

    def _table(self) -> DeltaTable | None:
        package = _package()
        try:  # `is_deltatable` would hold the GIL while it waits for a store
            found: DeltaTable = package.DeltaTable(self._uri, storage_options=self._options)
        except package.exceptions.TableNotFoundError:
            return None
        return found

    def _created(self) -> DeltaTable:
        made: DeltaTable = _package().DeltaTable.create(
            self._uri,
            schema=self._schema,
            partition_by=self._partition_by,
            mode="ignore",
            storage_options=self._options,
        )
        return made

    def _require_fit(self, table: DeltaTable) -> None:
        """Raise SinkMismatch unless the table has all columns with their types, and the same partitions."""
        stored: Any = table.schema().to_arrow()
        found = {field.name: field.type for field in pa.schema(stored)}
        for field in self._schema:
            if _stored(found.get(field.name)) != _stored(field.type):
                raise SinkMismatch(
                    f"the Delta table {self._uri} has no column {field.name} of type {field.type}",
                    advice="Add the column to the table, or write to another path. Then start the pipeline again: "
                    "nothing is lost.",
                    sink=self.paths.sink,
                    column=field.name,
                )
        partitions = list(table.metadata().partition_columns)
        if partitions != self._partition_by:
            raise SinkMismatch(
                f"the Delta table {self._uri} is partitioned by {partitions}, the sink by {self._partition_by}",
                advice=f"Set partition_by = '{','.join(partitions)}', or write to another path.",
                sink=self.paths.sink,
            )

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """Turn an error of the library into a coded error. A retry helps if another writer was faster."""
        package = _package()
        try:
            yield
        except (package.exceptions.DeltaError, OSError) as problem:
            if self._options is not None:
                with writing(self.paths):
                    raise coded_store_error(problem, StoreAccess(self._uri), "commit to the Delta table") from problem
            if isinstance(problem, OSError):
                raise
            raise SinkFailed(
                f"sink {self.paths.sink} cannot commit to the Delta table {self._uri}: {problem}",
                advice="Check the table's log, then start the pipeline again. The sink writes this epoch first.",
                sink=self.paths.sink,
                path=self._uri,
            ) from problem


def _stored(kind: pa.DataType | None) -> str:
    """A type as Delta stores it: Delta has one type each for text, bytes and lists."""
    return str(kind).replace("large_", "").replace("_view", "").replace("item: ", "").replace("element: ", "")


def _package() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError as problem:
        raise MissingPackage(
            f"sink 'delta' needs a package that is not installed here: {problem}",
            advice="pip install 'headrace[delta]'",
            package="deltalake",
        ) from problem
    return deltalake


def _check(settings: DeltaSettings) -> None:
    check_path(settings)
    _package()


def _task(sink: SinkDef, settings: DeltaSettings) -> FileTask:
    write = partial(write_parquet, compression=settings.compression)
    return FileTask(output_of(settings), sink.name, write, partition_by=settings.partition_by)


def _driver(sink: SinkDef, settings: DeltaSettings, output: Schema) -> DeltaSink:
    options = delta_options(StoreAccess.of(settings)) if is_remote(settings.path) else None
    return DeltaSink(output_of(settings), sink.name, partition_by=settings.partition_by, output=output, options=options)


def delta_options(access: StoreAccess) -> dict[str, str]:
    """The options of delta-rs for a store. What is not given comes from the environment. S3 servers must support
    conditional puts (If-None-Match), as Amazon's does: a commit of the log depends on it."""
    found = {"timeout": f"{int(ANSWER_SECONDS)}s", "connect_timeout": f"{int(CONNECT_SECONDS)}s", "max_retries": "3"}
    address = access.address or ""
    if access.scheme in S3:
        given = {
            "AWS_ENDPOINT_URL": address,
            "AWS_REGION": access.region,
            "AWS_ACCESS_KEY_ID": access.access_key,
            "AWS_SECRET_ACCESS_KEY": access.secret_key,
            "AWS_SESSION_TOKEN": access.session_token,
        }
    elif access.scheme in AZURE:
        given = {
            "AZURE_STORAGE_ACCOUNT_NAME": access.account,
            "AZURE_STORAGE_ACCOUNT_KEY": access.secret_key,
            "AZURE_ENDPOINT_URL": address,
        }
    else:
        given = {"GOOGLE_BASE_URL": address} if access.scheme in GCS else {}
    found |= {name: value for name, value in given.items() if value}
    return found | ({"AWS_ALLOW_HTTP": "true", "allow_http": "true"} if address.startswith("http://") else {})


DELTA = SinkKind(
    name="delta",
    help="appends to a Delta Lake table",
    guarantee=_GUARANTEE,
    settings=DeltaSettings,
    make_task=_task,
    make_driver=_driver,
    check_settings=_check,
    check_output=check_file_output,
    paths=("path",),
    task_secrets=STORE_SECRETS,
)
