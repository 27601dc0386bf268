"""Signals: one table, one counter for both channels that survives restarts, one barrier per epoch."""

from __future__ import annotations

import re
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control.acks import Ack, Acks
from headrace.control.log import Emitted, SignalLog, next_cut
from headrace.control.signals import (
    FLUSH,
    GRACEFUL_END,
    KINDS,
    PING,
    QUICK_END,
    SAVEPOINT,
    SYNC_TEST,
    Barrier,
    Channel,
    Instant,
)
from headrace.errors import InternalError, WrongChannel

ROOT = Path(__file__).parents[2]


def test_the_document_has_the_table_of_kinds() -> None:
    text = (ROOT / "docs" / "control.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (\w+) \| (yes|no) \| (.+) \|$", text, re.MULTILINE)
    wanted = [(k.name, k.form, k.channel.value, "yes" if k.terminal else "no", k.meaning) for k in KINDS.values()]
    assert rows == wanted


def test_a_signal_knows_its_channel_and_whether_it_is_terminal() -> None:
    assert {k.name for k in KINDS.values() if k.with_id(1).is_terminal} == {"graceful_end", "quick_end"}
    assert {k.name for k in KINDS.values() if k.channel is Channel.CONTROL} == {"flush", "quick_end", "ping"}
    assert isinstance(SAVEPOINT.with_id(1), Barrier) and isinstance(PING.with_id(1), Instant)
    for wrong in (lambda: Barrier("ping", 1), lambda: Instant("savepoint", 1), lambda: Barrier("nothing", 1)):
        with pytest.raises(InternalError):
            wrong()


def test_ids_grow_over_both_channels_and_restarts(tmp_path: Path) -> None:
    ids = []
    for _ in range(3):
        log = SignalLog(tmp_path)  # as after a restart
        ids += [log.emit_data(SYNC_TEST).id, log.emit_control(PING).id, log.emit_control(FLUSH).id]
    assert ids == list(range(1, 10))
    assert [e.id for e in SignalLog(tmp_path).pending(after=1)] == [4, 7]
    log.carried(4)
    assert [e.id for e in SignalLog(tmp_path).pending(after=0)] == [7]
    assert log.emit_data(SAVEPOINT).id == 10


def test_the_call_fixes_the_channel(tmp_path: Path) -> None:
    log = SignalLog(tmp_path)
    for kind in (FLUSH, PING, QUICK_END):
        with pytest.raises(WrongChannel):
            log.emit_data(kind)
    for kind in (SYNC_TEST, SAVEPOINT, GRACEFUL_END):
        with pytest.raises(WrongChannel):
            log.emit_control(kind)
    assert log.pending(0) == ()


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4)), max_size=12), st.randoms(use_true_random=False))
def test_every_epoch_takes_one_barrier_in_order_and_a_plan_waits_for_its_barrier(
    emitted: list[tuple[bool, int]], rng: Any
) -> None:
    """A barrier that asks for a plan version is in the first epoch that has that version, whatever else is pending."""
    newest = 1
    queue: list[Emitted] = []
    all_of_them: list[Emitted] = []
    for id, (bound, step) in enumerate(emitted, 1):
        if bound:
            newest += step
        all_of_them.append(Emitted("sync_test", id, newest if bound else 0))
    published, plan, done = 1, 1, 0
    carried: list[int] = []
    first_with: dict[int, int] = {}
    while len(carried) < len(all_of_them):
        if rng.random() < 0.5 and len(queue) < len(all_of_them):  # the log is written before the plan
            queue.append(all_of_them[len(queue)])
            published = max(published, queue[-1].plan)
        now, cut = next_cut(tuple(e for e in queue if e.id > done), published)
        assert now >= plan
        for version in range(plan + 1, now + 1):
            first_with[version] = cut.id if cut else 0
        plan = now
        if cut is not None:
            carried.append(cut.id)
            done = cut.id
        elif len(queue) == len(all_of_them):
            break
    assert carried == [e.id for e in all_of_them]
    for e in all_of_them:
        if e.plan:
            assert first_with[e.plan] == e.id


def test_acknowledgements_end_with_a_result_or_an_error() -> None:
    acks = Acks()
    first, second = Barrier("savepoint", 1), Barrier("sync_test", 2)
    a: Future[Ack] = acks.expect(first)
    b = acks.expect(second)
    acks.seen(Barrier("epoch", 1), 5)  # not the one that is waited for, though its number is the same
    acks.seen(Barrier("savepoint", 9), 5)
    assert not a.done() and not b.done()
    acks.seen(first, 6)
    assert a.result(0) == Ack(first, 6)
    acks.fail(InternalError("gone"))
    assert isinstance(b.exception(0), InternalError)
    acks.seen(second, 7)
