"""Packets of MQTT: cut anywhere, they are the packets that were sent."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.brokers import mqtt_packets as mqtt

MESSAGES = st.lists(
    st.tuples(
        st.binary(min_size=1, max_size=20),
        st.one_of(st.binary(max_size=40), st.integers(100, 20_000).map(bytes)),
        st.integers(0, 2),
        st.booleans(),
        st.integers(1, 65_535),
    ),
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(MESSAGES, st.lists(st.integers(1, 5000), min_size=1), st.sampled_from([mqtt.V311, mqtt.V5]))
def test_messages_are_read_as_they_were_written_however_the_network_cuts_them(
    messages: list[tuple[bytes, bytes, int, bool, int]], cuts: list[int], version: int
) -> None:
    data = b"".join(mqtt.publish(*message, version) for message in messages)
    reader, found, at, turn = mqtt.PacketReader(), [], 0, 0
    while at < len(data):
        step = cuts[turn % len(cuts)]
        found += reader.feed(data[at : at + step])
        at, turn = at + step, turn + 1
    wanted = [mqtt.Publish(t, p, q, r, mid if q else 0) for t, p, q, r, mid in messages]
    assert [mqtt.published(packet, version) for packet in found] == wanted


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.sampled_from([mqtt.V311, mqtt.V5]))
def test_bytes_that_are_no_packets_are_refused_and_never_crash(data: bytes, version: int) -> None:
    try:
        for packet in mqtt.PacketReader().feed(data):
            if packet.kind == mqtt.PUBLISH:
                mqtt.published(packet, version)
            elif packet.kind == mqtt.SUBACK:
                mqtt.suback(packet, version)
            elif packet.kind in (mqtt.PUBACK, mqtt.PUBREL):
                mqtt.acknowledged(packet)
            elif packet.kind == mqtt.CONNACK:
                mqtt.connack(packet)
    except mqtt.BadPacket:
        pass


def test_a_login_asks_for_a_session_that_stays_only_if_it_may_expire() -> None:
    kept = mqtt.connect(mqtt.Login("c", mqtt.V5, "u", "p", 30, expiry=60))
    once = mqtt.connect(mqtt.Login("c", mqtt.V311))
    (packet,), (other,) = mqtt.PacketReader().feed(kept), mqtt.PacketReader().feed(once)
    assert packet.body[6:10] == bytes([5, 0xC0, 0, 30]) and other.body[6:10] == bytes([4, 2, 0, 60])
    assert packet.body.endswith(b"\0\1c\0\1u\0\1p")
    with pytest.raises(mqtt.BadPacket):
        mqtt.PacketReader().feed(b"\x30\xff\xff\xff\xff\xff")
