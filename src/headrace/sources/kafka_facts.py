"""Metadata columns of Kafka messages: topic, partition, offset, timestamp, key, headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.model.schema import (
    BIGINT,
    BINARY,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Array,
    DataType,
    Field,
    Map,
    Struct,
)
from headrace.sources.source_kind import Fact

_PAIR = Struct((Field("key", STRING), Field("value", BINARY)))
METADATA: Mapping[str, tuple[DataType, ...]] = {
    "topic": (STRING,),
    "partition": (INT, BIGINT),
    "offset": (BIGINT,),
    "timestamp": (TIMESTAMP, TIMESTAMP_NTZ),
    "timestamp_type": (STRING,),
    "key": (STRING, BINARY),
    "headers": (Map(STRING, BINARY), Map(STRING, STRING), Array(_PAIR)),
}
_TIME_TYPES = ("none", "create", "append")


class MessageFacts:
    """The facts about some messages of one partition. Places are their numbers."""

    def __init__(self, topic: str, partition: int, messages: Sequence[Any]) -> None:
        self._topic, self._partition, self._messages = topic, partition, messages

    def column(self, key: str, kind: DataType, places: npt.NDArray[np.int64]) -> Fact:
        if key in ("topic", "partition"):
            constant: Any = pa.scalar(self._topic if key == "topic" else self._partition, kind.arrow)
            return Fact(pa.repeat(constant, len(places)))
        few = self._messages if len(places) == len(self._messages) else [self._messages[i] for i in places.tolist()]
        return _COLUMNS[key](few, kind)


def _offsets(messages: Sequence[Any], kind: DataType) -> Fact:
    return Fact(pa.array(np.fromiter((m.offset() for m in messages), np.int64, len(messages))))


def _timestamps(messages: Sequence[Any], kind: DataType) -> Fact:
    millis = np.fromiter((m.timestamp()[1] for m in messages), np.int64, len(messages))
    missing = np.fromiter((m.timestamp()[0] == 0 for m in messages), bool, len(messages))
    return Fact(pa.array(millis * 1000, mask=missing).view(kind.arrow))


def _time_types(messages: Sequence[Any], kind: DataType) -> Fact:
    return Fact(pa.array([_TIME_TYPES[m.timestamp()[0]] for m in messages], kind.arrow))


def _keys(messages: Sequence[Any], kind: DataType) -> Fact:
    return _texts(pa.array([m.key() for m in messages], pa.binary()), kind)


def _texts(values: Any, kind: DataType) -> Fact:
    """Bytes as they are, or as text."""
    if kind == BINARY:
        return Fact(values)
    try:
        return Fact(values.cast(pa.string()))
    except pa.ArrowInvalid:  # some are not UTF-8
        texts = [_text(v) for v in values.to_pylist()]
        bad = np.array([t is None and v is not None for t, v in zip(texts, values.to_pylist(), strict=True)])
        return Fact(pa.array(texts, pa.string()), bad)


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _headers(messages: Sequence[Any], kind: DataType) -> Fact:
    """A message without headers has an empty collection. Of equal names in a map the last wins. A value of a map of
    STRING that is not UTF-8 makes the whole value bad."""
    rows: list[Any] = [m.headers() or [] for m in messages]
    if isinstance(kind, Array):
        return Fact(pa.array([[{"key": k, "value": v} for k, v in row] for row in rows], kind.arrow))
    maps = [dict(row) for row in rows]
    bad = np.zeros(len(maps), bool)
    if isinstance(kind, Map) and kind.value == STRING:
        decoded: list[Any] = [{k: _text(v) for k, v in row.items()} for row in maps]
        for i, row in enumerate(maps):
            bad[i] = any(decoded[i][k] is None and v is not None for k, v in row.items())
        maps = decoded
    values = [None if wrong else list(row.items()) for row, wrong in zip(maps, bad.tolist(), strict=True)]
    return Fact(pa.array(values, kind.arrow), bad)


_COLUMNS: dict[str, Callable[[Sequence[Any], DataType], Fact]] = {
    "offset": _offsets,
    "timestamp": _timestamps,
    "timestamp_type": _time_types,
    "key": _keys,
    "headers": _headers,
}
