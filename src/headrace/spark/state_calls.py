"""Pipelines calls to Spark's state server: sends many requests before it reads the answers.

Spark's client sends one request and waits for its answer, and most of a call is that wait. The server answers the
requests of a connection in order, so several may be outstanding. This module sends Spark's own messages over the
client's own connection. Both are internal to Spark. If a Spark release changes them, calls are made one by one.
"""

from __future__ import annotations

import contextlib
import importlib
import pickle
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any

from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql.streaming.stateful_processor import MapState

_messages: Any = None
with contextlib.suppress(ImportError):
    _messages = importlib.import_module("pyspark.sql.streaming.proto.StateMessage_pb2")

# Requests per window. Two windows are outstanding at once: while the server answers one, the client reads or writes the
# other, and neither side wakes up for every single answer. The requests must fit into the socket's buffers while the
# server writes answers, or both sides would wait for each other. They do: requests that carry data have short answers,
# and the other way round.
WINDOW = 64
MANY = 16  # fewer calls are made one by one, by Spark's client
_FRAME = struct.Struct("!ii")  # the protocol's version, the length of the message

Key = tuple[int, ...]
_CALLS = {"getValue": "GetValue", "updateValue": "UpdateValue"}


def get_many(state: MapState, keys: Sequence[Key]) -> list[bytes | None]:
    """The first field of the value of each key; None for a key without a value."""
    client = _client(state)
    if client is None or len(keys) < MANY:
        return [None if (found := state.getValue(key)) is None else bytes(found[0]) for key in keys]
    api = client._stateful_processor_api_client
    dumps = _serializer(api, client.user_key_schema, tuple(keys[0]))
    calls = (_call(state._stateName, "getValue", userKey=dumps(tuple(key))) for key in keys)
    values = _exchange(api, calls)
    return [bytes(api._deserialize_from_bytes(value)[0]) if value else None for value in values]


def update_many(state: MapState, items: Sequence[tuple[Key, bytes]]) -> None:
    """Set the value of each key."""
    client = _client(state)
    if client is None or len(items) < MANY:
        for key, data in items:
            state.updateValue(key, (data,))
        return
    api = client._stateful_processor_api_client
    (key, data), name = items[0], state._stateName
    dump_key = _serializer(api, client.user_key_schema, tuple(key))
    dump_value = _serializer(api, client.value_schema, (data,))
    calls = (_call(name, "updateValue", userKey=dump_key(tuple(k)), value=dump_value((d,))) for k, d in items)
    _exchange(api, calls)


def _client(state: MapState) -> Any:
    """Spark's client, if this module knows it and its messages; else None."""
    client = getattr(state, "_mapStateClient", None)
    api = getattr(client, "_stateful_processor_api_client", None)
    known = ("sockfile", "_receive_proto_message", "_serialize_to_bytes", "_deserialize_from_bytes")
    return client if _messages is not None and _understood() and all(hasattr(api, name) for name in known) else None


@cache
def _understood() -> bool:
    """True if the requests made here have the same bytes as those of Spark's client."""
    try:
        get = _messages.MapStateCall(stateName="s", getValue=_messages.GetValue(userKey=b"k" * 200))
        update = _messages.MapStateCall(stateName="s", updateValue=_messages.UpdateValue(userKey=b"k", value=b"v"))
        for call, made in (
            (get, _call("s", "getValue", userKey=b"k" * 200)),
            (update, _call("s", "updateValue", userKey=b"k", value=b"v")),
        ):
            request = _messages.StateVariableRequest(mapStateCall=call)
            if _messages.StateRequest(stateVariableRequest=request).SerializeToString() != made:
                return False
    except (AttributeError, KeyError, TypeError, ValueError):  # other names, other types, larger numbers
        return False
    return True


def _serializer(api: Any, schema: Any, example: tuple[Any, ...]) -> Callable[[tuple[Any, ...]], bytes]:
    """A serializer for rows of this schema: plain pickle if Spark's own gives the same bytes for `example`, which is
    faster."""
    plain = partial(pickle.dumps, protocol=pickle.HIGHEST_PROTOCOL)
    whole = partial(api._serialize_to_bytes, schema)
    return plain if plain(example) == whole(example) else whole


def _call(state: str, kind: str, **fields: bytes) -> bytes:
    """A StateRequest with a call to a map state. Encoded by hand: protobuf takes 6 us for the five nested messages."""
    call = b"".join(_field(_CALLS[kind], name, data) for name, data in fields.items())
    named = _field("MapStateCall", "stateName", state.encode()) + _field("MapStateCall", kind, call)
    return _field("StateRequest", "stateVariableRequest", _field("StateVariableRequest", "mapStateCall", named))


def _field(message: str, name: str, data: bytes) -> bytes:
    """One length-delimited protobuf field."""
    length, size = len(data), b""
    while length > 0x7F:
        size += bytes((length & 0x7F | 0x80,))
        length >>= 7
    return b"%b%b%c%b" % (_tag(message, name), size, length, data)


@cache
def _tag(message: str, name: str) -> bytes:
    number = _messages.DESCRIPTOR.message_types_by_name[message].fields_by_name[name].number
    return bytes((number << 3 | 2,))  # field numbers up to 15


def _exchange(api: Any, calls: Iterable[bytes]) -> list[bytes]:
    """The answer to each call, in order.

    Any failure in between is raised as a failure of Spark, not of a pipeline. Answers may be left on the connection, so
    it must not be used again.
    """
    answers: list[bytes] = []
    asked = written = 0
    try:
        for call in calls:
            api.sockfile.write(_FRAME.pack(0, len(call)))
            api.sockfile.write(call)
            written += 1
            if written == WINDOW:
                api.sockfile.flush()
                _read(api, asked, answers)
                asked, written = written, 0
        api.sockfile.flush()
        _read(api, asked + written, answers)
    except (PySparkException, OSError, EOFError):
        raise
    except Exception as problem:
        raise PySparkRuntimeError(f"calls to the state server failed: {problem!r}") from problem
    return answers


def _read(api: Any, count: int, answers: list[bytes]) -> None:
    for _ in range(count):
        status, problem, value = api._receive_proto_message()
        if status != 0:
            raise PySparkRuntimeError(f"a call to the state server failed: {problem}")
        answers.append(value)
