"""The mqtt sink: publishes a message for each row.

Tasks make the messages and stage them, the driver publishes them and waits for the acknowledgements of the broker.

Unit of commit: the epoch. Guarantee: at least once. MQTT has no transactions: an epoch that is run again after a crash
is published again, and subscribers see part of an epoch while it is published.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headrace.base.options import boolean, choice, integer, option, text
from headrace.brokers.mqtt_connection import MqttClient, MqttConnection, MqttOptions, connection_of
from headrace.errors import BadOption, BrokerDenied, HeadraceError, SinkFailed, SinkRefused, SinkUnavailable
from headrace.model.definitions import SinkDef
from headrace.model.schema import Schema
from headrace.sinks.file_sink import FileTask
from headrace.sinks.message_rows import RowMessages, require_one
from headrace.sinks.sink_kind import SinkKey, SinkKind
from headrace.sinks.staged_sink import StagedRows, StagedSettings, StagedSink, check_staging, staged_task

GUARANTEE = "at least once: an epoch that is run again after a crash is sent again"
_LONGEST_TOPIC = 65_535


def _topic(value: str) -> str:
    if not value or set(value) & set("+#\0") or len(value.encode()) > _LONGEST_TOPIC:
        raise ValueError("the name of a topic, without the wildcards + and #")
    return value


@dataclass(frozen=True)
class MqttSinkSettings(StagedSettings, MqttOptions):
    """The options of `type = 'mqtt'`."""

    topic: str | None = option(_topic, help="the topic to publish to")
    topic_column: str | None = option(text, help="instead of topic: a column of type STRING with the topic of each row")
    qos: int = option(integer(0, 2), default=1, help="0, 1 (default) or 2; with 0 the broker may lose messages")
    retain: bool = option(boolean, default=False, help="the broker keeps the last message of a topic (default false)")
    format: Literal["json", "text"] = option(
        choice("json", "text"),
        default="json",
        help="json (default): a message is a JSON object; text: it is the only other column, of type STRING or BINARY",
    )
    ignore_nulls: bool = option(
        boolean, default=True, help="with json: leave out fields that are NULL (default true, as Spark does)"
    )

    @property
    def rows(self) -> RowMessages:
        return RowMessages(self.format, self.ignore_nulls, self.topic or "", self.topic_column)


def sink_failure(sink: str, problem: HeadraceError) -> HeadraceError:
    """The error of a sink for an error of its broker."""
    if isinstance(problem, SinkFailed):
        return problem
    if isinstance(problem, BrokerDenied | BadOption):
        return SinkRefused(f"sink {sink} {problem.message}", advice=problem.advice, sink=sink)
    return SinkUnavailable(
        f"sink {sink} {problem.message}",
        advice="The stream continues by itself when the broker answers, and nothing is lost. STOP PIPELINE ... NOW or "
        "DROP PIPELINE lets the other pipelines continue without it.",
        sink=sink,
    )


class MqttTarget:
    """The broker that one pipeline's use of a sink publishes to."""

    def __init__(self, sink: str, connection: MqttConnection, qos: int, retain: bool) -> None:
        self._sink, self._connection, self._qos, self._retain = sink, connection, qos, retain
        self._client: MqttClient | None = None

    def deliver(self, key: SinkKey, rows: StagedRows, count: int) -> None:
        if rows.gone is not None:  # they are deleted when they are delivered
            return
        try:
            if self._client is None:
                self._client = MqttClient(self._connection)
            self._client.publish(self._messages(rows), self._qos, self._retain)
        except HeadraceError as problem:
            self.close()
            raise sink_failure(self._sink, problem) from None
        except BaseException:
            self.close()
            raise

    def _messages(self, rows: StagedRows) -> Iterator[tuple[bytes, bytes]]:
        for batch in rows.batches():
            topics: list[Any] = batch.column("topic").to_pylist()
            values: list[Any] = batch.column("value").to_pylist()
            for topic, value in zip(topics, values, strict=True):
                if not topic or len(topic) > _LONGEST_TOPIC or b"+" in topic or b"#" in topic:
                    raise SinkRefused(
                        f"sink {self._sink} has a row whose topic is {topic[:80]!r}",
                        advice="A topic is not empty and has no + or #. Filter such rows out.",
                        sink=self._sink,
                    )
                yield topic, value

    def ahead(self, key: SinkKey) -> int:
        return 0  # the broker does not know epochs

    def rewind(self, key: SinkKey) -> None:
        """Nothing: messages cannot be taken back, and at least once allows them to come again."""

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _check(settings: MqttSinkSettings) -> None:
    check_staging(settings)
    require_one("sink 'mqtt'", settings.topic, settings.topic_column, "topic")
    MqttClient(connection_of(settings)).close()


def _check_output(sink: str, settings: MqttSinkSettings, output: Schema) -> None:
    settings.rows.check_output(sink, "topic_column", output)


def _task(sink: SinkDef, settings: MqttSinkSettings) -> FileTask:
    return staged_task(sink.name, settings, settings.rows.prepared)


def _driver(sink: SinkDef, settings: MqttSinkSettings, output: Schema) -> StagedSink:
    target = MqttTarget(sink.name, connection_of(settings), settings.qos, settings.retain)
    return StagedSink(Path(settings.staging), sink.name, GUARANTEE, target)


MQTT_SINK = SinkKind(
    name="mqtt",
    help="publishes rows to an MQTT broker",
    guarantee=GUARANTEE,
    settings=MqttSinkSettings,
    make_task=_task,
    make_driver=_driver,
    check_settings=_check,
    check_output=_check_output,
    paths=("staging",),
)
