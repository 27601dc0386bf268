"""Sends the epochs of one sink to a Kafka topic, exactly once.

**The marker, and why it is exactly once.** Every pipeline that uses the sink has a transactional id and a consumer
group of its own, named after (checkpoint, sink, instance). One transaction

1. sends the rows of the epoch to the topic, and
2. commits the number of the epoch as the offset of the group, with the digest of the epoch's input.

Readers that read only committed messages see both or neither. Before an epoch is sent, the group's offset is read. If
it is that of the epoch, or of a later one, the epoch is there already and nothing is sent. The producer is made first:
that ends what an earlier producer with the same transactional id has left open, in a process that died or was cut off,
and refuses anything more from it. After that only this producer changes the group's offset. After any error the
producer is discarded and the offset is read again. So it does not matter whether an unanswered commit took effect.

The staged rows are durable until the transaction is committed (`headrace.sinks.staged_sink`), so no epoch is lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.base.faults import fault_point
from headrace.brokers.connection import KafkaConnection, Noted, library, reason_of
from headrace.errors import (
    BrokerFailed,
    BrokerUnreachable,
    EpochMismatch,
    HeadraceError,
    SinkFailed,
    SinkRefused,
    SinkUnavailable,
)
from headrace.sinks.sink_kind import Checkpoints, SinkKey, SinkWriter
from headrace.sinks.staged_sink import StagedRows

_GROUP = re.compile(r"headrace-sink-[0-9a-f]{16}-(\d+)")
BATCH = 10_000  # messages that are given to the client at once
PATIENCE = 60.0  # seconds for one step of a transaction
_SETTINGS: dict[str, object] = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "partitioner": "murmur2_random",  # a key goes to the partition that Java's producers choose for it
    # Also the longest that a call of the client blocks when its broker is gone, whatever the time limit of the call.
    "transaction.timeout.ms": 120_000,
    "queue.buffering.max.kbytes": 65_536,
    "queue.buffering.max.messages": 200_000,
}
# Why a group's offset cannot be read yet.
# Errors that Kafka returns however often the message is sent.
_NEVER = ("MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG", "POLICY_VIOLATION", "INVALID_TRANSACTION_TIMEOUT")
_COORDINATOR = {
    "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "UNSTABLE_OFFSET_COMMIT",
    "_WAIT_COORD",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class EpochMarker:
    """The newest epoch in the topic, -1 before the first, and the digest of its input."""

    epoch: int = -1
    digest: str = ""


class _Sender:
    """The producer of one instance, and the marker that it has read. Raises KafkaException."""

    def __init__(self, connection: KafkaConnection, name: str, topic: str, noted: Noted) -> None:
        self._lib, self._topic = library(), topic
        self._producer = connection.producer({**_SETTINGS, "transactional.id": name}, noted)
        try:
            self._producer.init_transactions(PATIENCE)
        finally:
            self._producer.poll(0)  # lets the client note why it failed
        self.reader = _reader(connection, name, noted)
        self.marker = read_marker(self.reader, topic)

    def send(self, key: SinkKey, rows: StagedRows) -> None:
        """Send an epoch and its marker in one transaction."""
        self._producer.begin_transaction()
        for batch in rows.batches():
            for at in range(0, batch.num_rows, BATCH):
                self._produce(batch.slice(at, BATCH))
        fault_point("between-messages-and-marker")
        written = json.dumps({"epoch": key.epoch, "digest": key.digest})
        mark = self._lib.TopicPartition(self._topic, 0, key.epoch + 1, metadata=written)
        self._producer.send_offsets_to_transaction([mark], self.reader.consumer_group_metadata(), PATIENCE)
        self._producer.commit_transaction(PATIENCE)
        self.marker = EpochMarker(key.epoch, key.digest)

    def _produce(self, rows: pa.RecordBatch) -> None:
        columns = [rows.column(name).to_pylist() for name in ("key", "value", "headers")]
        for key, value, headers in zip(*columns, strict=True):
            while True:
                try:
                    self._producer.produce(self._topic, value, key, headers=headers)
                    break
                except BufferError:  # the queue is full
                    self._producer.poll(0.1)
        self._producer.poll(0)

    def close(self) -> None:
        with contextlib.suppress(Exception):  # it may be in any state; the next producer ends its transaction
            self.reader.close()
        with contextlib.suppress(Exception):
            self._producer.purge()


class KafkaTarget:
    """The topic that one pipeline's use of a sink writes to."""

    def __init__(self, sink: str, connection: KafkaConnection, topic: str) -> None:
        self._sink, self._connection, self._topic = sink, connection, topic
        self._senders: dict[str, _Sender] = {}
        self._noted = Noted()

    def deliver(self, key: SinkKey, rows: StagedRows, count: int) -> None:
        name = self._name(key)
        with self._asking(name, f"write to the topic {self._topic}"):
            sender = self._senders.get(name)
            if sender is None:
                sender = self._senders[name] = _Sender(self._connection, name, self._topic, self._noted)
            if sender.marker.epoch >= key.epoch:
                self._require_same(key, sender.marker)
                return
            rows.require()
            sender.send(key, rows)

    def writers(self, checkpoints: Checkpoints) -> set[SinkWriter]:
        """Those whose groups the broker lists: it deletes a group some time after it was used last."""
        with self._asking("", "list the consumer groups"):
            admin = self._connection.admin(self._noted)  # kept until it has answered: without it nothing would
            listed = admin.list_consumer_groups(request_timeout=PATIENCE).result()
            if listed.errors and not listed.valid:
                raise library().KafkaException(listed.errors[0])
        found = [(group.group_id, _GROUP.fullmatch(group.group_id)) for group in listed.valid]
        known = [(name, int(matched[1])) for name, matched in found if matched is not None]
        return {(c, i) for name, i in known for c in checkpoints(i) if name == self._name(SinkKey(c, i, 0))}

    def ahead(self, key: SinkKey) -> int:
        name = self._name(key)
        with self._asking(name, f"ask for the epochs in the topic {self._topic}"):
            reader = _reader(self._connection, name, self._noted)
            try:
                return max(0, read_marker(reader, self._topic).epoch - key.epoch)
            finally:
                reader.close()

    def rewind(self, key: SinkKey) -> None:
        if self.ahead(key):
            raise SinkRefused(
                f"the topic {self._topic} of sink {self._sink} has messages of epochs after {key.epoch}, and Kafka "
                "cannot take them back",
                advice="Restore without --rewind after you dropped the sink, or write to a new topic.",
                sink=self._sink,
            )

    def close(self) -> None:
        for sender in self._senders.values():
            sender.close()
        self._senders.clear()

    def _name(self, key: SinkKey) -> str:
        """The transactional id and the group of an instance."""
        writer = hashlib.sha256(f"{key.checkpoint}\0{self._sink}".encode()).hexdigest()[:16]
        return f"headrace-sink-{writer}-{key.instance}"

    def _require_same(self, key: SinkKey, marker: EpochMarker) -> None:
        if marker.epoch == key.epoch and key.digest and marker.digest not in ("", key.digest):
            raise EpochMismatch(
                f"topic {self._topic} has epoch {key.epoch} of sink {self._sink} with other input",
                advice="Nothing was written. Spark's checkpoint and the topic do not match: the checkpoint was partly "
                "lost or replaced by hand. Drop the stream and create it again.",
                sink=self._sink,
                epoch=key.epoch,
            )

    @contextmanager
    def _asking(self, name: str, what: str) -> Iterator[None]:
        """Turn errors of the client into errors of a sink. After one the producer is not used again."""
        lib = library()
        self._noted.clear()
        try:
            yield
        except lib.KafkaException as problem:
            sender = self._senders.pop(name, None)
            if sender is not None:
                sender.close()
            raise self._failure(self._connection.coded(problem.args[0], what, self._noted)) from None

    def _failure(self, problem: HeadraceError) -> SinkFailed:
        said = f"sink {self._sink} {problem.message}"
        passing = isinstance(problem, BrokerUnreachable | BrokerFailed) and reason_of(problem) not in _NEVER
        if passing or reason_of(problem).endswith("AUTHORIZATION_FAILED"):  # a permission may be granted again
            return SinkUnavailable(
                said,
                advice="The stream continues by itself when the broker answers, or allows it, and nothing is lost. "
                "STOP PIPELINE ... NOW or DROP PIPELINE lets the other pipelines continue without it.",
                sink=self._sink,
            )
        return SinkRefused(said, advice=problem.advice, sink=self._sink)


def _reader(connection: KafkaConnection, group: str, noted: Noted) -> Any:
    settings = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed"}
    return connection.consumer(settings, noted)


def read_marker(reader: Any, topic: str) -> EpochMarker:
    """The marker of the reader's group. Waits while a transaction is open that may change it, and while the broker
    looks for the group's coordinator."""
    lib, deadline = library(), time.monotonic() + PATIENCE
    while True:
        try:
            (found,) = reader.committed([lib.TopicPartition(topic, 0)], timeout=PATIENCE)
            if found.error is None:
                break
            raise lib.KafkaException(found.error)
        except lib.KafkaException as problem:
            if problem.args[0].name() not in _COORDINATOR or time.monotonic() > deadline:
                raise
        time.sleep(0.1)
    if found.offset < 0:
        return EpochMarker()
    facts = json.loads(found.metadata or "{}")
    return EpochMarker(int(facts.get("epoch", found.offset - 1)), str(facts.get("digest", "")))
