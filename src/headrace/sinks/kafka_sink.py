"""The kafka sink: sends rows to a topic, as JSON objects or as they are, with a key and headers.

Tasks make the bytes of keys and values, and stage them. The driver sends them in one transaction per epoch.

Unit of commit: the epoch. Guarantee: exactly once for readers of committed messages (`headrace.sinks.kafka_target`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from headrace.base.options import boolean, choice, option, text
from headrace.brokers.connection import ANSWER_SECONDS, KafkaConnection, Noted, client_settings, library
from headrace.errors import SinkMismatch, UnknownTopic
from headrace.exec.duck import run
from headrace.model.definitions import SinkDef
from headrace.model.program import Meaning
from headrace.model.schema import BINARY, STRING, Map, Schema
from headrace.sinks.file_sink import FileTask
from headrace.sinks.in_process import oldest_within
from headrace.sinks.jsonl import json_object, json_text, never_null
from headrace.sinks.kafka_target import KafkaTarget
from headrace.sinks.sink_kind import SinkKind
from headrace.sinks.staged_sink import StagedSettings, StagedSink, check_staging, staged_task

_GUARANTEE = "exactly once for readers of committed messages: rows and the number of the epoch are one transaction"
_CHUNK, _CHUNK_BYTES = 65_536, 16 * 1024 * 1024  # rows and bytes of rows that are converted at once
_HEADERS: Any = pa.map_(pa.string(), pa.binary())


def _names(value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError("names of columns, separated by commas, each once")
    return names


@dataclass(frozen=True, slots=True)
class KafkaSinkSettings(StagedSettings):
    """The options of `type = 'kafka'`."""

    topic: str = option(text, required=True, help="the topic to write to; it must exist")
    key: tuple[str, ...] = option(
        _names,
        default=(),
        help="the column that is the key of a message, which decides its partition; several are a JSON object",
    )
    format: Literal["json", "text"] = option(
        choice("json", "text"),
        default="json",
        help="json (default): a value is a JSON object; text: it is the only other column, of type STRING or BINARY",
    )
    key_in_value: bool = option(
        boolean, default=True, help="with json: the columns of the key are also in the value (default true)"
    )
    headers: str | None = option(
        text, help="a column of type MAP<STRING, STRING> or MAP<STRING, BINARY> with the headers of a message"
    )
    ignore_nulls: bool = option(
        boolean, default=True, help="with json: leave out fields that are NULL (default true, as Spark does)"
    )
    kafka: dict[str, str] = client_settings(  # noqa: RUF009
        "any setting of the client library librdkafka; kafka.bootstrap.servers is required"
    )

    def values(self, names: list[str]) -> list[str]:
        """The columns that the value holds, among those of the output."""
        left_out = {self.headers} | (set() if self.format == "json" and self.key_in_value else {*self.key})
        return [name for name in names if name not in left_out]


def prepared(table: pa.Table, settings: KafkaSinkSettings) -> pa.Table:
    """The messages of rows: key and value as bytes, and headers."""
    pieces, start = [], 0
    while start < table.num_rows:  # this bounds the memory for the texts of a large epoch
        piece = oldest_within(table.slice(start, _CHUNK), _CHUNK_BYTES)
        start += piece.num_rows
        pieces.append(_messages(piece, settings))
    return pa.concat_tables(pieces)


def _messages(table: pa.Table, settings: KafkaSinkSettings) -> pa.Table:
    names = table.schema.names
    positions = {name: i for i, name in enumerate(names)}
    positional = table.rename_columns([f"c{i}" for i in range(len(names))])

    def fields(wanted: list[str]) -> list[tuple[str, str, pa.DataType]]:
        return [(name, f"c{positions[name]}", table.schema.field(name).type) for name in wanted]

    values = fields(settings.values(names))
    as_json = settings.format == "json"
    value = json_object(values, settings.ignore_nulls, never_null(table)) if as_json else _plain(*values[0][1:])
    sql = f"SELECT {_key(fields(list(settings.key)))} AS key, {value} AS value FROM rows"
    found = run(Meaning(), sql, {"rows": positional})
    headers = table.column(settings.headers) if settings.headers else pa.chunked_array([pa.nulls(len(table), _HEADERS)])
    columns: list[Any] = [_bytes(found.column("key")), _bytes(found.column("value")), headers.cast(_HEADERS)]
    return pa.table(columns, names=["key", "value", "headers"])


def _key(fields: list[tuple[str, str, pa.DataType]]) -> str:
    if not fields:
        return "CAST(NULL AS VARCHAR)"
    return _plain(*fields[0][1:]) if len(fields) == 1 else json_object(fields, ignore_nulls=False)


def _plain(sql: str, kind: pa.DataType) -> str:
    """Strings and bytes as they are, other values as JSON writes them."""
    bare = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return sql if bare else json_text(sql, kind)


def _bytes(column: pa.ChunkedArray[Any]) -> Any:
    return column.cast(pa.large_string()).cast(pa.large_binary()).cast(pa.binary()) if _texts(column) else column


def _texts(column: pa.ChunkedArray[Any]) -> bool:
    return not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type))


def _check(settings: KafkaSinkSettings) -> None:
    check_staging(settings)
    connection, noted = KafkaConnection(settings.kafka), Noted()
    connection.check("sink 'kafka'")
    admin = connection.admin(noted)
    with connection.asking(f"find the topic {settings.topic}", noted, admin.poll):
        found = admin.list_topics(settings.topic, timeout=ANSWER_SECONDS).topics[settings.topic]
        if found.error is not None:
            raise library().KafkaException(found.error)
    if not found.partitions:
        raise UnknownTopic(f"there is no topic {settings.topic} at {connection.servers}", advice="Create it.")


def _check_output(sink: str, settings: KafkaSinkSettings, output: Schema) -> None:
    used = [*settings.key, *([settings.headers] if settings.headers else [])]
    if unknown := [name for name in used if name not in output.names]:
        raise SinkMismatch(
            f"sink {sink} names the column {unknown[0]}, which the pipeline does not have",
            advice=f"The pipeline has the columns {', '.join(output.names)}.",
            sink=sink,
            column=unknown[0],
        )
    types = {field.name: field.type for field in output}
    if settings.headers and types[settings.headers] not in (Map(STRING, STRING), Map(STRING, BINARY)):
        raise SinkMismatch(
            f"the headers of sink {sink} are {types[settings.headers].ddl}",
            advice="They must be MAP<STRING, STRING> or MAP<STRING, BINARY>.",
            sink=sink,
            column=settings.headers,
        )
    values = settings.values(list(output.names))
    if settings.format == "text" and (len(values) != 1 or types[values[0]] not in (STRING, BINARY)):
        raise SinkMismatch(
            f"sink {sink} has format = 'text', and the pipeline has the columns {', '.join(values)} for the value",
            advice="Select the key, the headers and exactly one other column, of type STRING or BINARY.",
            sink=sink,
        )


def _task(sink: SinkDef, settings: KafkaSinkSettings) -> FileTask:
    return staged_task(sink.name, settings, partial(prepared, settings=settings))


def _driver(sink: SinkDef, settings: KafkaSinkSettings, output: Schema) -> StagedSink:
    target = KafkaTarget(sink.name, KafkaConnection(settings.kafka), settings.topic)
    return StagedSink(Path(settings.staging), sink.name, _GUARANTEE, target)


KAFKA_SINK = SinkKind(
    name="kafka",
    help="sends rows to a Kafka topic",
    guarantee=_GUARANTEE,
    settings=KafkaSinkSettings,
    make_task=_task,
    make_driver=_driver,
    check_settings=_check,
    check_output=_check_output,
    paths=("staging",),
)
