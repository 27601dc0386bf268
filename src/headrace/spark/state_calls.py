"""Many calls to Spark's state server in a row, instead of one and a wait, one and a wait.

Spark's client sends a request and waits for the answer; most of a call is that wait. The server answers the requests of
a connection one after the other, so several may be under way. This speaks Spark's own messages over the client's own
connection. Both are internal to Spark: in a release that has other ones, calls are made one by one.
"""

from __future__ import annotations

import contextlib
import importlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.stateful_processor import MapState

_messages: Any = None
with contextlib.suppress(ImportError):
    _messages = importlib.import_module("pyspark.sql.streaming.proto.StateMessage_pb2")

# Requests under way at once. What is sent must fit into the socket's buffers while the server is busy answering, or
# both sides would wait for each other: requests that carry data have short answers and the other way round.
IN_FLIGHT = 64
MANY = 16  # fewer are asked one by one, in Spark's own way
_FRAME = struct.Struct("!ii")  # the protocol's version, the length of the message

Key = tuple[int, ...]


def get_many(state: MapState, keys: Sequence[Key]) -> list[bytes | None]:
    """The first field of the value of each key; None where there is none."""
    client = _client(state)
    if client is None or len(keys) < MANY:
        return [None if (found := state.getValue(key)) is None else bytes(found[0]) for key in keys]
    api = client._stateful_processor_api_client
    calls = (_messages.MapStateCall(stateName=state._stateName, getValue=_messages.GetValue(userKey=key))
             for key in _keys(client, keys))  # fmt: skip
    return [bytes(api._deserialize_from_bytes(found)[0]) if found else None for found in _exchange(api, calls)]


def update_many(state: MapState, items: Sequence[tuple[Key, bytes]]) -> None:
    """Set the value of each key."""
    client = _client(state)
    if client is None or len(items) < MANY:
        for key, data in items:
            state.updateValue(key, (data,))
        return
    api = client._stateful_processor_api_client
    values = (api._serialize_to_bytes(client.value_schema, (data,)) for _, data in items)
    calls = (
        _messages.MapStateCall(stateName=state._stateName, updateValue=_messages.UpdateValue(userKey=key, value=value))
        for key, value in zip(_keys(client, [key for key, _ in items]), values, strict=True)
    )
    for _ in _exchange(api, calls):
        pass


def _client(state: MapState) -> Any:
    """Spark's client, if it is the one that is known here."""
    client = getattr(state, "_mapStateClient", None)
    api = getattr(client, "_stateful_processor_api_client", None)
    known = ("sockfile", "_receive_proto_message", "_serialize_to_bytes", "_deserialize_from_bytes")
    return client if _messages is not None and all(hasattr(api, name) for name in known) else None


def _keys(client: Any, keys: Iterable[Key]) -> Iterator[bytes]:
    api = client._stateful_processor_api_client
    return (api._serialize_to_bytes(client.user_key_schema, tuple(key)) for key in keys)


def _exchange(api: Any, calls: Iterable[Any]) -> Iterator[bytes]:
    """The answer to each call, in order."""
    waiting = 0
    for call in calls:
        request = _messages.StateVariableRequest(mapStateCall=call)
        message = _messages.StateRequest(stateVariableRequest=request).SerializeToString()
        api.sockfile.write(_FRAME.pack(0, len(message)))
        api.sockfile.write(message)
        waiting += 1
        if waiting == IN_FLIGHT:
            yield from _answers(api, waiting)
            waiting = 0
    yield from _answers(api, waiting)


def _answers(api: Any, count: int) -> Iterator[bytes]:
    api.sockfile.flush()
    for _ in range(count):
        status, problem, value = api._receive_proto_message()
        if status != 0:
            raise PySparkRuntimeError(f"a call to the state server failed: {problem}")
        yield value
