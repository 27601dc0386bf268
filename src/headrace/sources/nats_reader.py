"""Reads a range of a JetStream stream in a task, through a pull consumer that the server forgets afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.brokers.nats_connection import NatsConnection, NatsLink
from headrace.errors import BrokerUnreachable
from headrace.formats.format_kind import Format
from headrace.formats.packing import EMPTY_MESSAGE, LOST, MessageFormat
from headrace.formats.text import TextRecords
from headrace.model.schema import BIGINT, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType, Map
from headrace.sources.source_kind import Fact, RawChunk

BATCH = 1000  # messages that are asked for at once
CHUNK = 4 << 20  # bytes of messages that are decoded at once
WAIT = 1.0  # seconds for an answer with messages
PATIENCE = 60.0  # seconds without a message, after which a task gives up and the epoch is run again
IDLE = 60.0  # seconds after which the server forgets an unused consumer
NATS_FACTS: Mapping[str, tuple[DataType, ...]] = {
    "subject": (STRING,),
    "sequence": (BIGINT,),
    "timestamp": (TIMESTAMP, TIMESTAMP_NTZ),
    "headers": (Map(STRING, STRING),),
}


@dataclass(frozen=True, slots=True)
class NatsFacts:
    """Metadata columns of some messages. Places are their numbers."""

    messages: list[Any]

    def column(self, key: str, kind: DataType, places: npt.NDArray[np.int64]) -> Fact:
        few = [self.messages[i] for i in places.tolist()]
        if key == "subject":
            return Fact(pa.array([m.subject for m in few], pa.string()))
        if key == "sequence":
            return Fact(pa.array([_sequence(m) for m in few], pa.int64()))
        if key == "timestamp":
            return Fact(pa.array([int(_tokens(m)[7]) // 1000 for m in few], pa.int64()).view(kind.arrow))
        return Fact(pa.array([list((m.headers or {}).items()) for m in few], kind.arrow))


def _tokens(message: Any) -> list[str]:
    """$JS.ACK.stream.consumer.delivered.sequence.consumer_sequence.nanoseconds.pending, or the longer form that has a
    domain and an account after ACK."""
    found: list[str] = message.reply.split(".")
    return found if len(found) < 11 else [*found[:2], *found[4:]]


def _sequence(message: Any) -> int:
    return int(_tokens(message)[5])


@dataclass(frozen=True, slots=True)
class NatsSplit:
    """The messages [begin, end) of a JetStream stream, of one subject if it is given. `lost` messages are gone, as the
    planner found; this split counts them."""

    connection: NatsConnection
    stream: str
    subject: str | None
    begin: int
    end: int
    lost: int = 0

    def read(self, fmt: Format) -> Iterator[RawChunk]:
        assert isinstance(fmt, MessageFormat), "CREATE STREAM rejects other formats"
        if self.lost:
            yield RawChunk(f"nats:{self.stream}", 0, b"", left_out={LOST: self.lost})
        if self.begin >= self.end:
            return
        link = NatsLink(self.connection)
        try:
            waiting: list[Any] = []
            size = 0
            for batch in self._batches(link):
                waiting += batch
                size += sum(len(m.data) for m in batch)
                if size >= CHUNK:
                    yield self._chunk(waiting, fmt)
                    waiting, size = [], 0
            if waiting:
                yield self._chunk(waiting, fmt)
        finally:
            link.close()

    def _batches(self, link: NatsLink) -> Iterator[list[Any]]:
        """The messages of the range, in order."""
        what = f"read the stream {self.stream}"
        pull, pending = link.ask(what, partial(self._subscribe, begin=self.begin))
        at, arrived = self.begin, time.monotonic()
        while at < self.end and pending:
            found = link.ask(what, partial(_fetch, pull=pull, count=min(BATCH, self.end - at)))
            if not found:
                if time.monotonic() - arrived > PATIENCE:
                    raise BrokerUnreachable(
                        f"no message of {self.stream} from {self.connection.url} for {PATIENCE:.0f} s",
                        advice="Check that the server runs. The stream tries again by itself.",
                        servers=self.connection.url,
                    )
                # The consumer may be gone with its server, and messages of the range may have been deleted meanwhile.
                pull, pending = link.ask(what, partial(self._subscribe, begin=at))
                continue
            arrived = time.monotonic()
            pending = int(_tokens(found[-1])[8])
            at = _sequence(found[-1]) + 1
            yield [m for m in found if _sequence(m) < self.end]

    async def _subscribe(self, client: Any, begin: int) -> tuple[Any, int]:
        """A pull consumer from `begin` on, and how many messages it has."""
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        jetstream = client.jetstream()
        info = await client.jsm().add_consumer(
            self.stream,
            ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=max(1, begin),
                ack_policy=AckPolicy.NONE,
                filter_subject=self.subject,
                inactive_threshold=IDLE,
                mem_storage=True,
            ),
        )
        pull = await jetstream.pull_subscribe_bind(
            info.name, stream=self.stream, pending_msgs_limit=-1, pending_bytes_limit=-1
        )
        return pull, info.num_pending or 0

    def _chunk(self, messages: list[Any], fmt: MessageFormat) -> RawChunk:
        left_out: dict[str, int] = {}
        if not isinstance(fmt, TextRecords) and not all(m.data for m in messages):
            empty = len(messages)
            messages = [m for m in messages if m.data]
            left_out = {EMPTY_MESSAGE: empty - len(messages)}
        origin = f"nats:{self.stream}"
        if not messages:
            return RawChunk(origin, 0, b"", left_out=left_out)
        packed = fmt.pack([m.data for m in messages], lambda: np.array([_sequence(m) for m in messages], np.int64))
        return RawChunk(origin, 0, packed.data, left_out=left_out, packed=packed, facts=NatsFacts(messages))


async def _fetch(client: Any, pull: Any, count: int) -> list[Any]:
    try:
        found: list[Any] = await pull.fetch(count, timeout=WAIT)
    except TimeoutError:
        return []
    return found
