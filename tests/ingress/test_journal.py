"""The journal: what is written is read back, whatever crashes; files go when all are past them."""

from __future__ import annotations

import json
import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import JournalDamaged, StateInUse
from headrace.ingress import entries as disk
from headrace.ingress import journal as module
from headrace.ingress.delimiting import Delimiting
from headrace.ingress.journal import Journal
from headrace.ingress.mark import Place, commit
from headrace.ingress.ready import ReadyLog, UnitReader

FINDER = Delimiting.of_token(b"\n")


class Sender:
    """An origin whose bytes come in pieces."""

    def __init__(self, journal: Journal, origin: int) -> None:
        self.journal, self.origin, self.sequence, self.sent = journal, origin, 0, b""

    def send(self, data: bytes) -> None:
        self.sequence += 1
        self.sent += data
        found = FINDER.search(data, 0, len(data), 0)
        self.journal.put(self.origin, self.sequence, data, found.first, found.last)

    @property
    def whole(self) -> list[bytes]:
        return self.sent[: self.sent.rfind(b"\n") + 1].splitlines()


def read(directory: Path, start: Place = Place(), parts: int = 3) -> list[bytes]:  # noqa: B008
    """All records that are ready after `start`, as tasks read them."""
    log = ReadyLog(directory)
    log.follow(start)
    end = log.advance(start, None)
    lines: list[bytes] = []
    for group in log.stretches(start, end, parts):
        reader = UnitReader(directory)
        for stretch in group:
            address = stretch.address
            for run in reader.runs(stretch, 100):
                assert run.address == address
                address += len(run.data)
                lines += run.data.splitlines()
    return lines


def fill(journal: Journal, rng: random.Random, origins: int = 4, steps: int = 60) -> list[Sender]:
    senders = [Sender(journal, i + 1) for i in range(origins)]
    for step in range(steps):
        sender = rng.choice(senders)
        text = f"{sender.origin}/{step}\n" * rng.randrange(3) + "x" * rng.randrange(4)
        sender.send(text.encode()[rng.randrange(2) :])
        if rng.random() < 0.3:
            journal.flush()
    return senders


@pytest.mark.parametrize("segment_bytes", [200, 1 << 20])
def test_what_is_written_is_read_back_by_any_number_of_tasks(tmp_path: Path, segment_bytes: int) -> None:
    journal = Journal(tmp_path, segment_bytes)
    senders = fill(journal, random.Random(1))
    journal.flush()
    wanted = sorted(line for s in senders for line in s.whole)
    assert [sorted(read(tmp_path, parts=n)) for n in (1, 2, 7)] == [wanted] * 3
    journal.close()


def test_a_journal_has_one_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.1)
    journal = Journal(tmp_path, 1 << 20)
    with pytest.raises(StateInUse):
        Journal(tmp_path, 1 << 20)
    journal.close()


@settings(max_examples=25)
@given(st.randoms(use_true_random=False), st.booleans())
def test_a_crash_at_any_byte_leaves_a_prefix_that_can_be_gone_on_with(rng: random.Random, ready_too: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        _crash(Path(directory), rng, ready_too)


def _crash(root: Path, rng: random.Random, ready_too: bool) -> None:
    journal = Journal(root, 1 << 20)
    fill(journal, rng)
    journal.close()
    before = read(root)
    segment, ready = disk.segment_path(root, journal.number), disk.ready_path(root, journal.number)
    if segment.stat().st_size:
        cut = rng.randrange(segment.stat().st_size)
        os.truncate(segment, cut) if rng.random() < 0.5 else _garble(segment, cut)
    if ready_too:
        os.truncate(ready, rng.randrange(ready.stat().st_size))
    again = Journal(root, 1 << 20)
    kept = read(root)
    assert kept == before[: len(kept)]
    senders = fill(again, rng)
    again.flush()
    fresh = sorted(line for s in senders for line in s.whole)
    assert read(root)[: len(kept)] == kept
    assert sorted(read(root)[len(kept) :]) == fresh
    pass
    again.close()
    all_of_it = read(root)
    Journal(root, 1 << 20).close()  # a cut is made once
    assert read(root) == all_of_it


def _garble(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x55
    path.write_bytes(data)


def test_damage_under_a_reader_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1 << 20)
    fill(journal, random.Random(3))
    journal.close()
    _garble(disk.segment_path(tmp_path, journal.number), 40)
    with pytest.raises(JournalDamaged) as problem:
        read(tmp_path)
    assert problem.value.params["path"] == str(disk.segment_path(tmp_path, journal.number))


def test_files_go_when_every_consumer_is_past_them_and_open_records_are_carried_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 2000)
    slow = Sender(journal, 99)
    slow.send(b"done\nan open record, ")
    busy = Sender(journal, 1)
    for i in range(200):
        busy.send(b"a line of the busy one %d\n" % i)
        journal.flush()
    log = ReadyLog(tmp_path)
    log.follow(Place())
    middle = log.advance(Place(), 3000)
    assert len(list(tmp_path.glob("segment-*"))) > 3
    commit(tmp_path, "stream", middle)
    commit(tmp_path, "other", Place())
    assert not journal.poll()  # the other has read nothing
    commit(tmp_path, "other", log.advance(Place(), None))
    held = journal.held
    assert journal.poll()
    assert journal.held == held - middle.address
    assert disk.numbers(tmp_path)[0] == middle.file
    assert read(tmp_path, middle)[0].startswith(b"a line")
    commit(tmp_path, "stream", log.advance(Place(), None))
    journal.poll()
    assert len(list(tmp_path.glob("segment-*"))) == 1
    slow.send(b"and its end\n")
    journal.flush()
    at = log.advance(Place(), None)
    assert read(tmp_path, at) == [b"an open record, and its end"]
    commit(tmp_path, "stream", Place(journal.number, journal._ready_end, journal.address))
    commit(tmp_path, "other", Place(journal.number, journal._ready_end, journal.address))
    journal.poll()
    assert journal.held == 0
    journal.close()


def test_counters_and_addresses_survive_restarts_and_deleted_files(tmp_path: Path) -> None:
    total = 0
    for turn in range(4):
        journal = Journal(tmp_path, 1 << 20)
        assert journal.counters.of("tcp")["bytes"] == total
        assert journal.held == 0
        sender = Sender(journal, 1)
        sender.send(b"turn %d\n" % turn)
        total += 7
        journal.counters.of("tcp")["bytes"] = total
        journal.close()
        commit(tmp_path, "stream", Place(journal.number, journal._ready_end, journal.address))
    assert json.loads((tmp_path / "consumers" / "stream.json").read_bytes())["address"] == total


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, 1 << 20)
    sender = Sender(journal, 1)
    sender.send(b"one\ntw")
    full = OSError(28, "No space left on device")
    real, calls = os.pwrite, [0]

    def pwrite(handle: int, data: memoryview, at: int) -> int:
        calls[0] += 1
        if calls[0] in (2, 4):  # half of the segment, then half of the ready log
            real(handle, data[: len(data) // 2], at)
            raise full
        if calls[0] == 1:
            raise full
        return real(handle, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    assert [journal.flush() for _ in range(3)] == [False, False, False]
    assert "No space" in journal.problem
    sender.send(b"o\nthree\n")
    assert journal.flush()
    assert not journal.problem
    assert read(tmp_path) == [b"one", b"two", b"three"]
    journal.close()
