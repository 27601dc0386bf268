"""The source `nats_core`: messages of NATS subjects without JetStream, which the gateway writes to a journal.

Unit of parallelism: a block of the journal. Delivery: at most once up to the journal, because core NATS keeps nothing;
from there in exactly one epoch.
"""

from __future__ import annotations

from headrace.brokers.nats_connection import ANSWER_SECONDS, NatsConnection, NatsLink
from headrace.ingress.settings import NatsCoreSettings
from headrace.model.definitions import StreamDef
from headrace.sources.message_formats import check_message_format
from headrace.sources.message_journal import SUBJECT_FACTS, MessageJournal
from headrace.sources.source_kind import SourceKind


def _check(stream: StreamDef, settings: NatsCoreSettings) -> None:
    check_message_format(stream)
    link = NatsLink(NatsConnection.of(settings))
    try:
        link.ask("connect", lambda client: client.flush(ANSWER_SECONDS))
    finally:
        link.close()


NATS_CORE = SourceKind(
    name="nats_core",
    help="messages of NATS subjects, without JetStream",
    settings=NatsCoreSettings,
    build=MessageJournal,
    check_settings=_check,
    pushed=True,
    changeable=("url", "user", "password", "token", "credentials", "ca_file"),
    metadata=SUBJECT_FACTS,
    guarantee="at most once into the journal, and from there into exactly one epoch",
)
