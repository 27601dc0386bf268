"""The source `mqtt`: messages of topics, which the gateway gets from a broker and writes to a journal.

Unit of parallelism: a block of the journal. Delivery: a message is acknowledged when the journal has it, and from there
it is in exactly one epoch. `headrace.ingress.mqtt_session` says what that means for each QoS.
"""

from __future__ import annotations

from headrace.brokers.mqtt_connection import MqttClient, connection_of
from headrace.ingress.settings import MqttSettings
from headrace.model.definitions import StreamDef
from headrace.sources.message_formats import check_message_format
from headrace.sources.message_journal import MQTT_FACTS, MessageJournal
from headrace.sources.source_kind import SourceKind


def _check(stream: StreamDef, settings: MqttSettings) -> None:
    check_message_format(stream)
    client = MqttClient(connection_of(settings))
    try:
        client.check_filters(settings.topics)
    finally:
        client.close()


MQTT = SourceKind(
    name="mqtt",
    help="messages of an MQTT broker",
    settings=MqttSettings,
    build=MessageJournal,
    check_settings=_check,
    pushed=True,
    changeable=(
        "url",
        "user",
        "password",
        "ca_file",
        "cert_file",
        "key_file",
        "client_id",
        "keep_alive",
        "session_expiry",
    ),
    metadata=MQTT_FACTS,
    guarantee="by qos into the journal (0 at most once, 1 at least once, 2 exactly once), then into one epoch",
)
