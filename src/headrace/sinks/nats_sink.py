"""The nats sink: publishes a message for each row, to JetStream or to plain subjects.

Tasks make the messages and stage them, the driver publishes them. With JetStream it waits for the acknowledgement of
every message, and gives each the same `Nats-Msg-Id` whenever it sends it: within its `duplicate_window` JetStream
stores such a message once. Without JetStream the server gets the messages, and whoever subscribes at that moment.

Unit of commit: the epoch. Guarantee: at least once, into JetStream or up to the server.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headrace.base.options import boolean, choice, option, text
from headrace.brokers.nats_connection import ANSWER_SECONDS, NatsConnection, NatsLink, NatsOptions, library
from headrace.errors import HeadraceError, SinkRefused
from headrace.model.definitions import SinkDef
from headrace.model.schema import Schema
from headrace.sinks.file_sink import FileTask
from headrace.sinks.message_rows import RowMessages, require_one
from headrace.sinks.mqtt_sink import GUARANTEE, sink_failure
from headrace.sinks.sink_kind import SinkKey, SinkKind
from headrace.sinks.staged_sink import StagedRows, StagedSettings, StagedSink, check_staging, staged_task

BATCH = 1000  # messages whose acknowledgements are awaited together


def _good_subject(value: str) -> bool:
    return bool(value) and not set(value) & set("*> \t\r\n") and all(value.split("."))


def _subject(value: str) -> str:
    if not _good_subject(value):
        raise ValueError("a subject such as plant.alarms, without the wildcards * and >")
    return value


@dataclass(frozen=True)
class NatsSinkSettings(StagedSettings, NatsOptions):
    """The options of `type = 'nats'`."""

    subject: str | None = option(_subject, help="the subject to publish to")
    subject_column: str | None = option(
        text, help="instead of subject: a column of type STRING with the subject of each row"
    )
    jetstream: bool = option(
        boolean, default=True, help="a JetStream stream must acknowledge each message (default true)"
    )
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
        return RowMessages(self.format, self.ignore_nulls, self.subject or "", self.subject_column)


class NatsTarget:
    """The server that one pipeline's use of a sink publishes to."""

    def __init__(self, sink: str, connection: NatsConnection, jetstream: bool) -> None:
        self._sink, self._jetstream = sink, jetstream
        self._link = NatsLink(connection)
        self._context: tuple[Any, Any] | None = None  # a client, and its JetStream

    def deliver(self, key: SinkKey, rows: StagedRows, count: int) -> None:
        if rows.gone is not None:  # they are deleted when they are delivered
            return
        writer = hashlib.sha256(f"{key.checkpoint}\0{self._sink}".encode()).hexdigest()[:16]
        prefix, number = f"{writer}-{key.instance}-{key.epoch}", 0
        try:
            for batch in self._batches(rows):
                first, number = number, number + len(batch)
                self._link.ask("publish", lambda c, b=batch, f=first: self._publish(c, b, f"{prefix}-", f))  # type: ignore[misc]
        except HeadraceError as problem:
            self._link.close()
            raise sink_failure(self._sink, problem) from None

    def _batches(self, rows: StagedRows) -> Iterator[list[tuple[str, bytes]]]:
        for staged in rows.batches():
            for at in range(0, staged.num_rows, BATCH):
                part = staged.slice(at, BATCH)
                staged_topics: list[Any] = part.column("topic").to_pylist()
                values: list[Any] = part.column("value").to_pylist()
                topics = [t.decode("utf-8", "replace") for t in staged_topics]
                wrong = next((t for t in topics if not _good_subject(t)), None)
                if wrong is not None:
                    raise self._bad(wrong)
                yield list(zip(topics, values, strict=True))

    def _bad(self, subject: str) -> SinkRefused:
        return SinkRefused(
            f"sink {self._sink} has a row whose subject is {subject[:80]!r}",
            advice="A subject consists of words separated by dots, without spaces, * and >. Filter such rows out.",
            sink=self._sink,
        )

    async def _publish(self, client: Any, batch: list[tuple[str, bytes]], prefix: str, first: int) -> None:
        if not self._jetstream:
            for subject, value in batch:
                await client.publish(subject, value)
            await client.flush(ANSWER_SECONDS)
            return
        if self._context is None or self._context[0] is not client:  # each context subscribes to its own answers
            self._context = (client, client.jetstream())
        jetstream = self._context[1]
        sent = [
            await jetstream.publish_async(subject, value, headers={"Nats-Msg-Id": f"{prefix}{first + i}"})
            for i, (subject, value) in enumerate(batch)
        ]
        try:
            await asyncio.gather(*sent)
        except library().js.errors.NoStreamResponseError:
            raise SinkRefused(
                f"sink {self._sink}: no JetStream stream takes the subject {batch[0][0]}",
                advice="Create a stream with this subject, or set jetstream = 'false'.",
                sink=self._sink,
            ) from None

    def ahead(self, key: SinkKey) -> int:
        return 0  # the server does not know epochs

    def rewind(self, key: SinkKey) -> None:
        """Nothing: messages cannot be taken back, and at least once allows them to come again."""

    def close(self) -> None:
        self._link.close()


def _check(settings: NatsSinkSettings) -> None:
    check_staging(settings)
    require_one("sink 'nats'", settings.subject, settings.subject_column, "subject")
    link = NatsLink(NatsConnection.of(settings))
    try:
        link.ask("connect", lambda client: client.flush(ANSWER_SECONDS))
    finally:
        link.close()


def _check_output(sink: str, settings: NatsSinkSettings, output: Schema) -> None:
    settings.rows.check_output(sink, "subject_column", output)


def _task(sink: SinkDef, settings: NatsSinkSettings) -> FileTask:
    return staged_task(sink.name, settings, settings.rows.prepared)


def _driver(sink: SinkDef, settings: NatsSinkSettings, output: Schema) -> StagedSink:
    target = NatsTarget(sink.name, NatsConnection.of(settings), settings.jetstream)
    return StagedSink(Path(settings.staging), sink.name, GUARANTEE, target)


NATS_SINK = SinkKind(
    name="nats",
    help="publishes rows to a NATS server",
    guarantee=GUARANTEE,
    settings=NatsSinkSettings,
    make_task=_task,
    make_driver=_driver,
    check_settings=_check,
    check_output=_check_output,
    paths=("staging",),
)
