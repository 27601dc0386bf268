"""Messages are decoded as they were encoded, and their order is the same in a re-run."""

from __future__ import annotations

import random
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bridge import messages
from headrace.bridge.messages import (
    SPARK_DDL,
    VERSION,
    LaneEnd,
    LaneEpoch,
    MessageKind,
    Receipt,
    Row,
    decode,
    encode,
    in_order,
    to_batch,
)
from headrace.bridge.reports import Failure, LaneReport, PlannedEpoch, PoolReport, TaskReport
from headrace.control.signals import KINDS, Barrier
from headrace.errors import InternalError
from headrace.model.schema import parse_type
from headrace.sinks.sink_kind import Staged
from headrace.sources.badfiles import BadRange
from headrace.sources.extent import Stamp

T = TypeVar("T")

_INT = st.integers(0, 2**31 - 1)
_ROWS = st.lists(
    st.builds(
        Row, st.integers(0, 2**63 - 1), _INT, _INT, _INT, st.sampled_from(MessageKind).map(int), st.binary(max_size=9)
    ),
    max_size=8,
)


@given(_ROWS)
def test_a_batch_has_the_declared_schema_and_the_rows_that_were_sent(rows: list[Row]) -> None:
    batch = to_batch(rows)
    declared = [part.split() for part in SPARK_DDL.split(", ")]
    assert batch.schema == pa.schema([pa.field(name, parse_type(kind).arrow) for name, kind in declared])
    assert [Row(**r) for r in batch.to_pylist()] == rows


@given(_ROWS, st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_arrival(rows: list[Row], shuffle: random.Random) -> None:
    arrived = list({(r.kind, r.task, r.seq): r for r in rows}.values())
    expected = in_order(arrived)
    shuffle.shuffle(arrived)
    assert in_order(arrived) == expected


def test_a_watermark_never_overtakes_events_nor_an_end_a_watermark() -> None:
    sent = [
        Row(1, 0, task, seq, int(kind), b"") for task in (1, 0) for seq, kind in enumerate(reversed(list(MessageKind)))
    ]
    kinds = [MessageKind(r.kind) for r in in_order(sent)]
    assert kinds[:8] == [
        k for k in (MessageKind.EVENTS, MessageKind.WATERMARK, MessageKind.BARRIER, MessageKind.EOF) for _ in range(2)
    ]
    assert [r.task for r in in_order(sent)] == [0, 1] * len(MessageKind)


_TIMES = st.none() | st.integers(-(2**62), 2**62)


@given(st.builds(LaneEpoch, _INT, _INT, st.text(), _TIMES, _TIMES, st.integers(0, 2**40), st.text()))
def test_a_watermark_message_comes_back_as_it_was_sent(sent: LaneEpoch) -> None:
    assert LaneEpoch.decode(sent.encode()) == sent


_BARRIERS = st.builds(Barrier, st.sampled_from([k.name for k in KINDS.values() if k.form == "barrier"]), _INT)
_TRAFFIC = st.tuples(*[_INT] * 6)
_BAD = st.builds(BadRange, st.text(), _INT, _INT, st.text(), st.text(), st.none() | st.builds(Stamp, *[_INT] * 4))


def _many(inner: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(inner, max_size=3).map(tuple)


_PLANNED = st.builds(
    PlannedEpoch,
    epoch=_INT,
    tasks=_INT,
    checkpoint=st.text(),
    watermark=_TIMES,
    now=_TIMES,
    requested=st.none() | _BARRIERS,
    out=_many(_INT),
    probing=st.booleans(),
    end=st.none() | st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.integers())),
)
_MESSAGES: list[st.SearchStrategy[Any]] = [
    _BARRIERS,
    st.builds(LaneEnd, st.booleans(), st.booleans(), st.booleans()),
    st.builds(Failure, _INT, st.text(), st.none() | st.text()),
    st.builds(
        TaskReport,
        **dict.fromkeys(("task", "plan", "rows", "bytes", "values", "rejected", "nulled", "future"), _INT),
        planned=_PLANNED,
        ending=st.booleans(),
        leaving=_many(_INT),
        bad=st.dictionaries(st.text(), _INT),
        max_time=_TIMES,
        read_ms=st.floats(0, 1e9),
        ring0_ms=st.floats(0, 1e9),
        unreadable=_many(_BAD),
    ),
]


@given(st.one_of(_MESSAGES))
def test_a_message_comes_back_as_it_was_sent(sent: Any) -> None:
    assert decode(type(sent), encode(sent)) == sent


@given(_INT, _BARRIERS, st.data())
def test_the_reports_of_a_pool_come_back_as_they_were_sent(bucket: int, barrier: Barrier, data: st.DataObject) -> None:
    counts = dict.fromkeys(("instance", "late", "closed", "rows", "bytes", "groups"), _INT)
    report = st.builds(
        LaneReport,
        **counts,
        bucket=st.just(bucket),
        barrier=st.just(barrier),
        received=_TRAFFIC,
        ms=st.floats(0, 1e9),
    )
    sent = data.draw(st.lists(report, min_size=1, max_size=4))
    assert list(decode(PoolReport, encode(PoolReport.of(sent))).each()) == sent


@given(st.builds(Receipt, st.integers(1, 2**62), st.text(), st.builds(Staged, _INT, st.text(), st.binary())))
def test_a_receipt_comes_back_as_it_was_sent(sent: Receipt) -> None:
    assert Receipt.decode(sent.encode()) == sent


def test_a_message_of_another_version_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    watermark = LaneEpoch(1, 1, "c", None, None, 0).encode()
    end, receipt = encode(LaneEnd(flush=True)), Receipt(1, "s", Staged(1, data=b"x")).encode()
    monkeypatch.setattr(messages, "VERSION", VERSION + 1)
    with pytest.raises(InternalError):
        LaneEpoch.decode(watermark)
    with pytest.raises(InternalError):
        Receipt.decode(receipt)
    for payload in (end, b'{"flush": true}', b""):
        with pytest.raises(InternalError):
            decode(LaneEnd, payload)


@given(st.lists(_ROWS, max_size=6), st.integers(1, 12))
def test_batches_carry_every_message_once_and_in_order(sent: list[list[Row]], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "BATCH_MESSAGES", most)
        found = list(messages.batches(sent))
    assert [Row(**r) for batch in found for r in batch.to_pylist()] == [row for rows in sent for row in rows]
    assert all(batch.num_rows < most + max(map(len, sent)) for batch in found)
