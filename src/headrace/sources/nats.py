"""The source `nats`: the messages of a JetStream stream, by their sequence numbers.

The next sequence number is in Spark's offset log, so an epoch that is run again reads the same messages. Tasks read
ranges of sequence numbers through pull consumers that live as long as the reading. A durable consumer shows the lag of
the stream to the usual tools; the stream never reads it back.

Unit of parallelism: a range of sequence numbers. Delivery: exactly once into an epoch, replayable as long as the
JetStream stream keeps the messages.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from headrace.base.options import choice, option, text
from headrace.brokers.nats_connection import NatsConnection, NatsLink, NatsOptions
from headrace.errors import BadOption, BrokerUnreachable, HeadraceError, UnknownTopic
from headrace.model.definitions import StreamDef
from headrace.model.stored import parsed, store_text
from headrace.sources.kafka_reader import lost
from headrace.sources.message_formats import check_message_format
from headrace.sources.nats_reader import NATS_FACTS, NatsSplit
from headrace.sources.source_kind import InputSplit, SourceKind, SourceOffset, WallClock

POLL = 0.1  # minimum seconds between two questions for the end
SHOW = 5.0  # seconds between two updates of the durable consumer
OUTAGE = 30.0  # seconds for which an unreachable server counts as one without news
SMALLEST_SPLIT = 5_000  # messages; less is not worth a task


def _stream_name(value: str) -> str:
    if not value or set(value) & set(".*>/\\ \t\r\n"):
        raise ValueError("the name of a JetStream stream, without dots, spaces and wildcards")
    return value


@dataclass(frozen=True)
class NatsSettings(NatsOptions):
    """The options of `source = 'nats'`."""

    stream: str = option(_stream_name, required=True, help="the name of the JetStream stream")
    subject: str | None = option(text, help="only messages of this subject, which may have the wildcards * and >")
    start: Literal["earliest", "latest"] = option(
        choice("earliest", "latest"),
        default="earliest",
        help="where a new stream begins: with all messages, or with those that come later",
    )
    durable: str | None = option(text, help="the durable consumer that shows the lag; headrace-STREAM if absent")
    on_data_loss: Literal["fail", "skip"] = option(
        choice("fail", "skip"),
        default="fail",
        help="if messages are gone before they are read: fail stops the stream, skip counts them and continues",
    )

    @property
    def connection(self) -> NatsConnection:
        return NatsConnection.of(self)


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What the server says about a JetStream stream. `end` is the sequence number after its last message."""

    created: str
    first: int
    end: int
    message_bytes: float
    retention: str


def stream_facts(link: NatsLink, name: str) -> StreamFacts:
    """Ask for a JetStream stream. Raises coded errors."""

    async def ask(client: Any) -> Any:
        # As JSON: the library's own class has no creation time for every version of the server.
        answer = await client.request(f"$JS.API.STREAM.INFO.{name}", b"", timeout=5)
        return json.loads(answer.data)

    found = link.ask(f"find the stream {name}", ask)
    if "error" in found:
        raise link.connection.coded(_not_found(found["error"]), f"find the stream {name}")
    state = found["state"]
    size = state["bytes"] / state["messages"] if state["messages"] else 512.0
    return StreamFacts(
        created=found["created"],
        first=state["first_seq"],
        end=state["last_seq"] + 1,
        message_bytes=size,
        retention=found["config"].get("retention", "limits"),
    )


def _not_found(error: dict[str, Any]) -> Exception:
    from nats.js.errors import APIError

    try:
        APIError.from_error(error)
    except Exception as problem:
        return problem
    return RuntimeError(str(error))


class JetStreamSource:
    """Plans the epochs of a JetStream stream. `headrace.sources.source_kind.StreamSource` states the promises."""

    def __init__(self, stream: StreamDef, settings: NatsSettings, state_dir: Path, clock: WallClock) -> None:
        self._settings, self._clock = settings, clock
        self._durable = settings.durable or f"headrace-{stream.name}"
        self._start_file = state_dir / "start.json"
        self._facts: StreamFacts | None = None
        self._asked = self._shown_at = float("-inf")
        self._shown = -1

    @cached_property
    def _link(self) -> NatsLink:
        return NatsLink(self._settings.connection)

    def initial(self) -> SourceOffset:
        """The same at every call: Spark may ask again after a crash, and messages that came in between must not be
        skipped."""
        if not self._start_file.exists():
            facts = self._ask(now=True)
            begin = facts.first if self._settings.start == "earliest" else facts.end
            store_text(self._start_file, json.dumps({"created": facts.created, "next": begin}))
        return parsed(self._start_file, json.loads) or {}

    def latest(self, start: SourceOffset, max_bytes: int | None) -> SourceOffset:
        facts = self._ask()
        self._show(start["next"])
        begin = start["next"]
        if facts.created != start["created"]:
            self._lost(f"the stream {self._settings.stream} was deleted and created again")
            begin = facts.first
        elif facts.end < begin:
            self._lost(f"the stream {self._settings.stream} is shorter than what was read of it")
            begin = facts.first
        end = facts.end
        if max_bytes is not None:
            end = min(end, begin + max(1, int(max_bytes / facts.message_bytes)))
        found = {"created": facts.created, "next": end}
        return start if found == start else found

    def splits(self, start: SourceOffset, end: SourceOffset, parallelism: int) -> list[InputSplit]:
        facts = self._ask(now=True)
        again = start["created"] != end["created"] or end["next"] < start["next"]
        begin, stop, gone = 1 if again else start["next"], end["next"], 1 if again else 0
        if facts.created != end["created"]:
            self._lost(f"the stream {self._settings.stream} was deleted and created again")
            begin, gone = stop, gone + 1
        elif facts.first > begin and not again:
            until = min(facts.first, stop)
            self._lost(f"the messages {begin} to {until - 1} of {self._settings.stream} are gone", sequence=begin)
            gone, begin = gone + until - begin, until
        tasks = max(1, min(parallelism, -(-(stop - begin) // SMALLEST_SPLIT)))
        cuts = [begin + (stop - begin) * i // tasks for i in range(tasks + 1)]
        settings = self._settings
        return [
            NatsSplit(
                connection=settings.connection,
                stream=settings.stream,
                subject=settings.subject,
                begin=low,
                end=high,
                lost=gone if i == 0 else 0,
            )
            for i, (low, high) in enumerate(pairwise(cuts))
        ]

    def exhausted(self, at: SourceOffset) -> bool:
        return self._ask(now=True).end <= int(at["next"])

    def backlog(self, at: SourceOffset) -> int:
        facts = self._ask()
        return int(max(0, facts.end - max(facts.first, at["next"])) * facts.message_bytes)

    def commit(self, end: SourceOffset) -> None:
        self._show(end["next"])

    def _ask(self, now: bool = False) -> StreamFacts:
        """The newest facts. While the server cannot be reached or does not know the stream, the previous facts are used
        for a while."""
        clock = self._clock()
        if self._facts is None or now or not self._asked <= clock < self._asked + POLL:
            try:
                self._facts, self._asked = stream_facts(self._link, self._settings.stream), clock
            except (BrokerUnreachable, UnknownTopic):
                if self._facts is None or now or not self._asked <= clock < self._asked + OUTAGE:
                    raise
        return self._facts

    def _lost(self, what: str, **params: Any) -> None:
        if self._settings.on_data_loss == "fail":
            raise lost(what, **params)

    def _show(self, sequence: int) -> None:
        """Let the durable consumer begin at `sequence`: everything before it is committed. A consumer cannot be moved,
        so it is made again. A failure here does no harm."""
        clock = self._clock()
        if sequence == self._shown or self._shown_at <= clock < self._shown_at + SHOW:
            return
        name, settings = self._settings.stream, self._settings

        async def again(client: Any) -> None:
            manager = client.jsm()
            with contextlib.suppress(Exception):
                await manager.delete_consumer(name, self._durable)
            from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

            await manager.add_consumer(
                name,
                ConsumerConfig(
                    durable_name=self._durable,
                    deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                    opt_start_seq=max(1, sequence),
                    ack_policy=AckPolicy.EXPLICIT,
                    filter_subject=settings.subject,
                    description="shows the lag of a headrace stream",
                ),
            )

        with contextlib.suppress(HeadraceError):
            self._link.ask("show the progress", again)
        self._shown, self._shown_at = sequence, clock


def _check(stream: StreamDef, settings: NatsSettings) -> None:
    check_message_format(stream)
    link = NatsLink(settings.connection)
    try:
        facts = stream_facts(link, settings.stream)
    finally:
        link.close()
    if facts.retention != "limits":
        raise BadOption(
            f"the JetStream stream {settings.stream} has the retention {facts.retention}: it deletes messages when "
            "some other consumer has read them",
            advice="Read a stream with the retention limits, for example one that mirrors this stream.",
            option="stream",
        )


NATS = SourceKind(
    name="nats",
    help="the messages of a NATS JetStream stream",
    settings=NatsSettings,
    build=JetStreamSource,
    check_settings=_check,
    changeable=("on_data_loss", "url", "user", "password", "token", "credentials", "ca_file"),
    metadata=NATS_FACTS,
    guarantee="exactly once into an epoch; the JetStream stream must keep the messages until they are read",
)
