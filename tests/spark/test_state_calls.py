"""Pipelined calls have the bytes of Spark's own client, and every answer belongs to its call."""

from __future__ import annotations

import contextlib
import importlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.serializers import PickleSerializer
from pyspark.sql.streaming.map_state_client import MapStateClient
from pyspark.sql.streaming.stateful_processor import MapState
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from headrace.spark import state_calls
from headrace.spark.state_calls import get_many, update_many

messages: Any = importlib.import_module("pyspark.sql.streaming.proto.StateMessage_pb2")
KEY = StructType([StructField("a", LongType()), StructField("b", LongType())])
DATA = StructType([StructField("data", BinaryType())])


class Server(threading.Thread):
    """Answers as Spark's server does: one request after the other, in order."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(daemon=True)
        self.file = connection.makefile("rwb")
        self.values: dict[bytes, bytes] = {}
        self.broken: set[bytes] = set()

    def run(self) -> None:
        with contextlib.suppress(ConnectionError):  # a client that failed does not read the rest
            self.answer()

    def answer(self) -> None:
        while head := self.file.read(8):
            version, length = struct.unpack("!ii", head)
            assert version == 0
            request = messages.StateRequest.FromString(self.file.read(length))
            call = request.stateVariableRequest.mapStateCall
            assert call.stateName == "blobs"
            answer = messages.StateResponse()
            if call.HasField("getValue"):
                answer.value = self.values.get(call.getValue.userKey, b"")
                answer.statusCode = 1 if call.getValue.userKey in self.broken else 0
            else:
                self.values[call.updateValue.userKey] = call.updateValue.value
            text = answer.SerializeToString()
            self.file.write(struct.pack("!i", len(text)) + text)
            self.file.flush()


@pytest.fixture
def served() -> Iterator[tuple[MapState, Server]]:
    ours, theirs = socket.socketpair()
    server = Server(theirs)
    server.start()
    api: Any = object.__new__(StatefulProcessorApiClient)
    api.sockfile, api.pickleSer = ours.makefile("rwb", 65536), PickleSerializer()
    yield MapState(MapStateClient(api, KEY, DATA), "blobs"), server
    api.sockfile.close()
    ours.close()
    server.join(10)
    with contextlib.suppress(ConnectionError):
        server.file.close()
    theirs.close()


@pytest.mark.parametrize("count", [0, 1, 2, state_calls.MANY, state_calls.WINDOW, 3 * state_calls.WINDOW + 1])
def test_values_that_were_put_are_read_back_together_and_one_by_one(
    served: tuple[MapState, Server], count: int
) -> None:
    state, server = served
    blobs = [((i, -i), bytes([i % 251]) * (i * 37)) for i in range(1, count + 1)]
    update_many(state, blobs)
    assert len(server.values) == count
    assert get_many(state, [key for key, _ in blobs]) == [data for _, data in blobs]
    for key, data in blobs[:3]:
        found = state.getValue(key)
        assert found is not None
        assert bytes(found[0]) == data
    assert get_many(state, [(0, i) for i in range(20)]) == [None] * 20


def test_large_values_pass_in_both_directions(served: tuple[MapState, Server]) -> None:
    state, _ = served
    blobs = [((i, 0), bytes([i]) * 1_000_000) for i in range(20)]
    update_many(state, blobs)
    assert get_many(state, [key for key, _ in blobs]) == [data for _, data in blobs]


def test_a_failed_call_is_raised(served: tuple[MapState, Server]) -> None:
    state, server = served
    keys = [(i, i) for i in range(state_calls.MANY)]
    update_many(state, [(key, b"x") for key in keys])
    server.broken.add(next(iter(server.values)))
    with pytest.raises(PySparkRuntimeError):
        get_many(state, keys)


def test_a_broken_connection_is_a_failure_of_spark_and_not_of_a_pipeline(served: tuple[MapState, Server]) -> None:
    """Answers may still be on the connection, so it must not be used again."""
    state, server = served
    keys = [(i, i) for i in range(state_calls.MANY)]
    api: Any = state._mapStateClient._stateful_processor_api_client
    receive, received = api._receive_proto_message, list[int]()

    def broken() -> Any:
        received.append(1)
        if len(received) == 3:
            raise MemoryError
        return receive()

    api._receive_proto_message = broken
    with pytest.raises(PySparkRuntimeError, match="MemoryError"):
        get_many(state, keys)
    assert server.is_alive()


def test_a_spark_release_with_other_messages_gets_single_calls(
    served: tuple[MapState, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, server = served
    assert state_calls._understood()
    state_calls._understood.cache_clear()
    monkeypatch.setattr(state_calls, "_tag", lambda message, name: b"\x7a")
    try:
        assert not state_calls._understood()
        update_many(state, [((i, i), bytes([i])) for i in range(state_calls.MANY)])
        assert len(server.values) == state_calls.MANY
    finally:
        state_calls._understood.cache_clear()


def test_an_unknown_client_gets_single_calls(served: tuple[MapState, Server], monkeypatch: pytest.MonkeyPatch) -> None:
    state, _ = served
    monkeypatch.setattr(state_calls, "_messages", None)
    blobs = [((i, i), bytes([i])) for i in range(20)]
    update_many(state, blobs)
    assert get_many(state, [*(key for key, _ in blobs), (99, 0)]) == [*(data for _, data in blobs), None]
