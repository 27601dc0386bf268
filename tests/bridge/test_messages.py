"""Messages come back as they were sent, in an order that a re-run repeats, and never too large for one row."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bridge import messages
from headrace.bridge.messages import (
    SPARK_DDL,
    VERSION,
    Kind,
    LaneEnd,
    LaneEpoch,
    Row,
    decode_json,
    decode_receipt,
    encode_json,
    encode_receipt,
    in_order,
    to_batch,
)
from headrace.errors import InternalError
from headrace.model.schema import parse_type
from headrace.sinks.base import Staged

_INT = st.integers(0, 2**31 - 1)
_ROWS = st.lists(
    st.builds(Row, st.integers(0, 2**63 - 1), _INT, _INT, _INT, st.sampled_from(Kind).map(int), st.binary(max_size=9)),
    max_size=8,
)


@given(_ROWS)
def test_a_batch_has_the_schema_that_spark_was_told_and_the_rows_that_were_sent(rows: list[Row]) -> None:
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
    sent = [Row(1, 0, task, seq, int(kind), b"") for task in (1, 0) for seq, kind in enumerate(reversed(list(Kind)))]
    kinds = [Kind(r.kind) for r in in_order(sent)]
    assert kinds[:8] == [k for k in (Kind.EVENTS, Kind.WATERMARK, Kind.BARRIER, Kind.EOF) for _ in range(2)]
    assert [r.task for r in in_order(sent)] == [0, 1] * len(Kind)


_TIMES = st.none() | st.integers(-(2**62), 2**62)


@given(st.builds(LaneEpoch, _INT, _INT, st.text(), _TIMES, _TIMES, st.integers(0, 2**40), st.text()))
def test_a_watermark_message_comes_back_as_it_was_sent(sent: LaneEpoch) -> None:
    assert LaneEpoch.decode(sent.encode()) == sent


@given(st.dictionaries(st.text().filter(lambda k: k != "v"), st.none() | st.integers() | st.text() | st.booleans()))
def test_a_control_message_comes_back_as_it_was_sent(sent: dict[str, object]) -> None:
    assert decode_json(encode_json(sent)) == {"v": VERSION, **sent}


@given(st.integers(1, 2**62), st.text(), st.builds(Staged, _INT, st.text(), st.binary()))
def test_a_receipt_comes_back_as_it_was_sent(instance: int, sink: str, staged: Staged) -> None:
    assert decode_receipt(encode_receipt(instance, sink, staged)) == (instance, sink, staged)


def test_a_message_of_another_version_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    watermark = LaneEpoch(1, 1, "c", None, None, 0).encode()
    control, receipt = encode_json({"flush": True}), encode_receipt(1, "s", Staged(1, data=b"x"))
    monkeypatch.setattr(messages, "VERSION", VERSION + 1)
    for decode, payload in ((LaneEpoch.decode, watermark), (decode_json, control), (decode_receipt, receipt)):
        with pytest.raises(InternalError):
            decode(payload)
    with pytest.raises(InternalError):
        decode_json(json.dumps({"flush": True}).encode())


@given(st.lists(_ROWS, max_size=6), st.integers(1, 12))
def test_batches_carry_every_message_once_and_in_order(sent: list[list[Row]], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "BATCH_MESSAGES", most)
        found = list(messages.batches(sent))
    assert [Row(**r) for batch in found for r in batch.to_pylist()] == [row for rows in sent for row in rows]
    assert all(batch.num_rows < most + max(map(len, sent)) for batch in found)


@given(st.booleans(), st.booleans(), st.booleans())
def test_an_end_comes_back_as_it_was_sent(flush: bool, drop: bool, reset: bool) -> None:
    end = LaneEnd(flush, drop, reset)
    assert LaneEnd.decode(end.encode()) == end
