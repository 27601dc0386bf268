"""The journal: data survives crashes, and files are deleted when every consumer has read them."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import JournalDamaged, StateInUse
from headrace.ingress import entries as disk
from headrace.ingress import journal as module
from headrace.ingress import recovery
from headrace.ingress.delimiting import Delimiting
from headrace.ingress.journal import Journal
from headrace.ingress.journal_reserve import RESERVE
from headrace.ingress.mark import MARK, JournalPosition, commit, note_begun, read_consumer, require_journal
from headrace.ingress.ready import ReadyLog, Stretch, UnitReader
from headrace.ingress.repair import repair
from headrace.state.savepoints import copy_tree

FINDER = Delimiting.of_token(b"\n")
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # where syncing costs nothing


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


def read(directory: Path, start: JournalPosition = JournalPosition(), parts: int = 3) -> list[bytes]:  # noqa: B008
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
                assert run.address >= address  # more, where a repair took records out
                address = run.address + len(run.data)
                lines += run.data.splitlines()
    return lines


def fill(journal: Journal, rng: random.Random, origins: int = 4, steps: int = 60, first: int = 1) -> list[Sender]:
    senders = [Sender(journal, i + first) for i in range(origins)]
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
    monkeypatch.setattr("headrace.ingress.journal_files.LOCK_SECONDS", 0.1)
    journal = Journal(tmp_path, 1 << 20)
    with pytest.raises(StateInUse):
        Journal(tmp_path, 1 << 20)
    journal.close()


@settings(max_examples=15)
@given(st.randoms(use_true_random=False), st.booleans())
def test_a_crash_at_any_byte_leaves_a_prefix_that_can_be_continued(rng: random.Random, ready_too: bool) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        _crash(Path(directory), rng, ready_too)


def _crash(root: Path, rng: random.Random, ready_too: bool) -> None:
    journal = Journal(root, 1 << 20)
    fill(journal, rng)
    journal.close()
    before = read(root)
    segment, ready = disk.segment_path(root, journal.number), disk.ready_path(root, journal.number)
    if segment.stat().st_size:
        os.truncate(segment, rng.randrange(segment.stat().st_size))
    if ready_too:
        os.truncate(ready, rng.randrange(ready.stat().st_size))
    again = Journal(root, 1 << 20)
    kept = read(root)
    assert kept == before[: len(kept)]
    assert again.lost_bytes == sum(len(line) + 1 for line in before[len(kept) :])
    assert again.address >= journal.address  # addresses never go back
    assert again.held == sum(len(line) + 1 for line in kept)
    senders = fill(again, rng)
    again.flush()
    fresh = sorted(line for s in senders for line in s.whole)
    assert read(root)[: len(kept)] == kept
    assert sorted(read(root)[len(kept) :]) == fresh
    again.close()
    all_of_it = read(root)
    last = Journal(root, 1 << 20)  # a cut is made once, and reported once
    assert read(root) == all_of_it
    assert last.lost_bytes == again.lost_bytes
    assert last.address == again.address  # it was closed well: nothing can be lost
    last.close()


@settings(max_examples=25)
@given(st.randoms(use_true_random=False), st.floats(0, 1), st.floats(0, 1), st.integers(0, 3))
def test_what_is_acknowledged_after_a_power_loss_is_read_once(
    rng: random.Random, segment_cut: float, ready_cut: float, rolls: int
) -> None:
    """A planner that had planned further than the journal reaches now reads everything that comes later."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        root = Path(directory)
        journal = Journal(root, 1 << 20)
        fill(journal, rng, steps=10)
        for turn in range(rolls):
            journal.flush()
            journal._roll()
            fill(journal, rng, steps=10, first=10 * turn + 10)
        journal.flush()
        log = ReadyLog(root)
        log.follow(JournalPosition())
        begin = log.advance(JournalPosition(), rng.randrange(1, 200))
        planned = log.advance(begin, rng.randrange(1, 500))
        whole = read(root)
        journal._mark.close()
        os.close(journal._lock)  # the process is gone; only what the mark says was synced
        for path, share in ((disk.segment_path, segment_cut), (disk.ready_path, ready_cut)):
            newest = path(root, journal.number)
            os.truncate(newest, int(newest.stat().st_size * share))
        again = Journal(root, 1 << 20)
        kept = read(root)
        assert kept == whole[: len(kept)]
        senders = fill(again, rng, origins=3)
        again.flush()
        fresh = sorted(line for s in senders for line in s.whole)
        for reader in (log, ReadyLog(root)):
            reader.follow(begin)
            rerun = [run for g in reader.stretches(begin, planned, 2) for s in g for run in _runs(root, s)]
            reader.follow(planned)
            end = reader.advance(planned, None)
            later = [run for g in reader.stretches(planned, end, 2) for s in g for run in _runs(root, s)]
            rest = [line for data in rerun + later for line in data.splitlines()]
            old = size_of(kept) - min(begin.address, size_of(kept))  # of what is kept, it had read so much before
            assert size_of(rest[: len(rest) - len(fresh)]) == old
            assert sorted(rest[len(rest) - len(fresh) :]) == fresh
            seen = size_of(whole) if reader is log else planned.address
            assert reader.lost == max(0, seen - size_of(kept))
        again.close()


def _runs(root: Path, stretch: Stretch) -> list[bytes]:
    return [run.data for run in UnitReader(root).runs(stretch, 100)]


def contents(root: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(root.iterdir()) if p.is_file() and p.name not in ("lock", "reserve")}


@settings(max_examples=40)
@given(st.randoms(use_true_random=False), st.sampled_from(["flip", "cut", "remove"]), st.floats(0, 1), st.floats(0, 1))
def test_damage_to_any_file_is_never_silent(rng: random.Random, how: str, which: float, where: float) -> None:
    """Either all records come out, or JOURNAL_DAMAGED and every file stays; a newest file that lost its end is cut, and
    what was lost is counted. A repair then brings out the rest."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        root = Path(directory)
        journal = Journal(root, 400)
        fill(journal, rng, steps=40)
        journal.close()
        wanted = read(root)
        files = sorted(p for p in root.iterdir() if p.name not in ("lock", "reserve") and p.is_file())
        path = files[min(len(files) - 1, int(which * len(files)))]
        newest = path in (disk.segment_path(root, journal.number), disk.ready_path(root, journal.number))
        size = path.stat().st_size
        place = min(max(0, size - 1), int(where * size))
        if how == "remove":
            path.unlink()
        elif how == "cut":
            os.truncate(path, place)
        elif size:
            _garble(path, place)
        before = contents(root)
        try:
            found, lost = _open_and_read(root)
        except JournalDamaged:
            assert {name: data for name, data in contents(root).items() if name in before and name != MARK} == {
                name: data for name, data in before.items() if name != MARK
            }
            repair(root)
            found, lost = _open_and_read(root)
            assert not repair(root)
            assert Counter(found) <= Counter(wanted)
            assert lost >= size_of(wanted) - size_of(found)
            return
        if newest and how == "cut":
            assert found == wanted[: len(found)]
            assert lost == size_of(wanted) - size_of(found)
        else:
            assert found == wanted


def size_of(lines: list[bytes]) -> int:
    return sum(len(line) + 1 for line in lines)


def _open_and_read(root: Path) -> tuple[list[bytes], int]:
    """All records that a journal has when it is opened, and what it has lost. New ones come after them."""
    journal = Journal(root, 400)
    try:
        found = read(root)
        sender = Sender(journal, 77)
        sender.send(b"fresh\n")
        journal.flush()
        assert read(root) == [*found, b"fresh"]
        return found, journal.lost_bytes
    finally:
        journal.close()


def _garble(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x55
    path.write_bytes(data)


@pytest.mark.parametrize("marked", [True, False])
def test_no_byte_of_a_newest_log_makes_it_seem_torn(tmp_path: Path, marked: bool) -> None:
    """A damaged length reaches beyond the end of the file, as that of a torn record does."""
    journal = Journal(tmp_path, 1 << 20)
    fill(journal, random.Random(3), steps=20)
    journal.close()
    path = disk.ready_path(tmp_path, journal.number)
    records = list(disk.records(path.read_bytes(), journal.number))
    if not marked:
        (tmp_path / MARK).unlink()
        records = records[:-1]  # the last one cannot be distinguished from one that was torn
    assert len(records) > 1
    for record in records:
        for place in range(record.begin, record.begin + disk.RECORD.size):
            _garble(path, place)
            before = contents(tmp_path)
            with pytest.raises(JournalDamaged):
                Journal(tmp_path, 1 << 20)
            assert contents(tmp_path) == before
            _garble(path, place)
    wanted = read(tmp_path)
    Journal(tmp_path, 1 << 20).close()
    assert read(tmp_path) == wanted


def test_addresses_never_go_back_when_only_the_position_of_the_consumer_is_left(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1 << 20)
    fill(journal, random.Random(4))
    journal.flush()
    log = ReadyLog(tmp_path)
    log.follow(JournalPosition())
    read_to = log.advance(JournalPosition(), 100)
    planned = log.advance(read_to, None)
    commit(tmp_path, "stream", read_to)
    journal.close()
    for path in [p for p in tmp_path.iterdir() if p.is_file()]:
        path.unlink()
    again = Journal(tmp_path, 1 << 20)
    Sender(again, 9).send(b"fresh\n")
    again.flush()
    reader = ReadyLog(tmp_path)
    reader.follow(planned)
    end = reader.advance(planned, None)
    assert [run for g in reader.stretches(planned, end, 1) for s in g for run in _runs(tmp_path, s)] == [b"fresh\n"]
    assert reader.lost == planned.address - read_to.address
    again.close()


@settings(max_examples=25)
@given(st.lists(st.booleans(), max_size=2), st.floats(0, 1), st.sampled_from([disk.ready_path, disk.segment_path]))
def test_what_comes_after_a_newest_file_that_lost_its_beginning_is_read_also_after_jumps(
    killed: list[bool], keep: float, path: Callable[[Path, int], Path]
) -> None:
    """The consumer's position may be that of an earlier file: it moves with the epoch after."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        root = Path(directory)
        planned = JournalPosition()
        for life, kill in enumerate([*killed, False]):
            journal = Journal(root, 1 << 20)
            Sender(journal, 1).send(b"".join(b"%d\n" % i for i in range(life * 40, life * 40 + 40)))
            assert journal.flush()
            reader = ReadyLog(root)
            reader.follow(planned)
            commit(root, "stream", planned)
            planned = reader.advance(planned, None)
            if kill:
                journal._mark.close()
                os.close(journal._lock)
            else:
                journal.close()
        newest = path(root, journal.number)
        os.truncate(newest, int(newest.stat().st_size * keep))
        try:
            again = Journal(root, 1 << 20)
        except JournalDamaged:
            return
        Sender(again, 9).send(b"fresh\n")
        assert again.flush()
        assert again.address > planned.address
        assert again.lost_bytes <= 400  # jumps are not bytes
        reader = ReadyLog(root)
        reader.follow(planned)
        stretches = reader.stretches(planned, reader.advance(planned, None), 1)
        assert [run for group in stretches for s in group for run in _runs(root, s)][-1:] == [b"fresh\n"]
        assert reader.lost <= 400
        again.close()


def test_damage_under_a_reader_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1 << 20)
    fill(journal, random.Random(3))
    journal.close()
    _garble(disk.segment_path(tmp_path, journal.number), 40)
    with pytest.raises(JournalDamaged) as problem:
        read(tmp_path)
    assert problem.value.params["path"] == str(disk.segment_path(tmp_path, journal.number))


def test_a_journal_of_an_earlier_version_is_refused_until_all_of_it_was_read(tmp_path: Path) -> None:
    ready, segment = disk.ready_path(tmp_path, 1), disk.segment_path(tmp_path, 1)
    old = disk.OLDER_RECORD + bytes(452)
    ready.write_bytes(old)
    segment.write_bytes(bytes(41))
    (tmp_path / "consumers").mkdir()
    consumer = tmp_path / "consumers" / "stream.json"
    consumer.write_text(json.dumps({"file": 1, "pos": 100, "address": 9}))  # as that version wrote it
    for _ in range(2):
        with pytest.raises(JournalDamaged) as problem:
            Journal(tmp_path, 1 << 20)
        assert problem.value.params["path"] == str(ready)
        assert (ready.read_bytes(), segment.read_bytes()) == (old, bytes(41))
    consumer.write_text(json.dumps({"file": 1, "pos": len(old), "address": 18}))
    journal = Journal(tmp_path, 1 << 20)
    Sender(journal, 1).send(b"fresh\n")
    journal.flush()
    assert read(tmp_path, JournalPosition(1, len(old), 18)) == [b"fresh"]
    journal.close()


def test_files_are_deleted_when_every_consumer_is_past_them_and_open_records_are_copied(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 2000)
    slow = Sender(journal, 99)
    slow.send(b"done\nan open record, ")
    busy = Sender(journal, 1)
    for i in range(200):
        busy.send(b"a line of the busy one %d\n" % i)
        journal.flush()
    log = ReadyLog(tmp_path)
    log.follow(JournalPosition())
    middle = log.advance(JournalPosition(), 3000)
    assert len(list(tmp_path.glob("segment-*"))) > 3
    commit(tmp_path, "stream", middle)
    commit(tmp_path, "other", JournalPosition())
    assert not journal.poll()  # the other has read nothing
    commit(tmp_path, "other", log.advance(JournalPosition(), None))
    held = journal.held
    assert journal.poll()
    assert journal.held == held - middle.address
    assert disk.numbers(tmp_path)[0] == middle.file
    assert read(tmp_path, middle)[0].startswith(b"a line")
    commit(tmp_path, "stream", log.advance(JournalPosition(), None))
    journal.poll()
    assert len(list(tmp_path.glob("segment-*"))) == 1
    slow.send(b"and its end\n")
    journal.flush()
    at = log.advance(JournalPosition(), None)
    assert read(tmp_path, at) == [b"an open record, and its end"]
    commit(tmp_path, "stream", journal.end)
    commit(tmp_path, "other", journal.end)
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
        commit(tmp_path, "stream", journal.end)
    found = read_consumer(tmp_path / "consumers" / "stream.json")
    assert found is not None and found[0].address == total


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


def test_opening_reads_the_newest_file_only_and_is_done_again_without_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, 2000)
    fill(journal, random.Random(2), steps=200)
    journal.close()
    wanted, before = read(tmp_path), disk.numbers(tmp_path)
    assert len(before) > 5
    scanned: list[int] = []
    real = recovery.scan

    def scan(directory: Path, number: int, consumed: JournalPosition) -> recovery.LogScan:
        scanned.append(number)
        return real(directory, number, consumed)

    monkeypatch.setattr(recovery, "scan", scan)
    for turn in range(3):
        Journal(tmp_path, 2000).close()
        assert scanned == [before[-1] + turn]
        scanned.clear()
        assert read(tmp_path) == wanted


def test_a_machine_that_was_off_may_have_torn_what_was_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, 1 << 20)
    sender = Sender(journal, 1)
    for turn in range(3):
        sender.send(b"a line of turn %d\n" % turn)
        journal.flush()
        if turn < 2:
            journal._roll()
    journal._mark.close()
    os.close(journal._lock)
    _garble(disk.segment_path(tmp_path, 2), 40)  # closed, but newer than the mark
    monkeypatch.setattr(recovery, "boot", lambda: "another")
    again = Journal(tmp_path, 1 << 20)
    assert read(tmp_path) == [b"a line of turn 0"]
    assert again.lost_bytes == len(b"a line of turn 1\n")  # at least: the rest was never known to be there
    assert again.address >= journal.address
    again.close()


def test_a_damaged_position_of_a_consumer_deletes_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 300)
    fill(journal, random.Random(5))
    journal.flush()
    log = ReadyLog(tmp_path)
    log.follow(JournalPosition())
    commit(tmp_path, "stream", log.advance(JournalPosition(), 100))
    wanted = read(tmp_path, log.advance(JournalPosition(), 100))
    journal.poll()
    path = tmp_path / "consumers" / "stream.json"
    _garble(path, path.read_bytes().index(b"address") + 12)
    assert not journal.poll()
    journal.close()
    Journal(tmp_path, 300).close()
    assert read(tmp_path, log.advance(JournalPosition(), 100)) == wanted


def test_a_failed_sync_is_never_repeated_on_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed fsync Linux may drop the pages, and the next one says that all is well."""
    journal = Journal(tmp_path, 1 << 20)
    sender = Sender(journal, 1)
    sender.send(b"one\n")
    journal.flush()
    journal.sync()
    sender.send(b"two\n")
    journal.flush()
    failed = {p.stat().st_ino for p in tmp_path.glob("*-*")}
    synced: dict[int, bytes] = {}
    broken = [True]

    def fdatasync(handle: int) -> None:
        inode = os.fstat(handle).st_ino
        if broken[0] or inode in failed:
            raise OSError(5, "Input/output error")
        synced[inode] = os.pread(handle, 1 << 20, 0)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    with pytest.raises(OSError):
        journal.sync()
    assert "cannot be synced" in journal.problem
    sender.send(b"three\n")
    assert not journal.flush()
    with pytest.raises(OSError):
        journal.sync()
    broken[0] = False
    journal.sync()
    assert journal.flush()
    journal.sync()
    assert not journal.problem
    segment, ready = disk.segment_path(tmp_path, journal.number), disk.ready_path(tmp_path, journal.number)
    for path in (segment, ready):
        assert path.stat().st_ino not in failed
        assert synced[path.stat().st_ino] == path.read_bytes()
    assert read(tmp_path) == [b"one", b"two", b"three"]
    journal.close()


def test_pages_that_the_system_dropped_after_a_failed_sync_are_not_taken_for_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, 1 << 20)
    Sender(journal, 1).send(b"one\n")
    journal.flush()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        with pytest.raises(OSError):
            journal.sync()
    _garble(disk.segment_path(tmp_path, journal.number), 35)
    with pytest.raises(OSError):
        journal.sync()
    assert "cannot be synced" in journal.problem
    with pytest.raises(OSError):
        journal.close()


class SmallDisk:
    """Writes and new files fail when the files of a directory together have reached a size."""

    def __init__(self, root: Path, size: int, patch: pytest.MonkeyPatch) -> None:
        self.root, self.size = root, size
        self._pwrite = os.pwrite
        patch.setattr(os, "pwrite", self.pwrite)

    def pwrite(self, handle: int, data: memoryview, at: int) -> int:
        used = sum(p.stat().st_size for p in self.root.rglob("*") if p.is_file())
        grows = max(0, at + len(data) - os.fstat(handle).st_size)
        if used + grows > self.size:
            raise OSError(28, "No space left on device")
        return self._pwrite(handle, data, at)


def test_a_disk_that_the_journal_itself_has_filled_is_free_again_when_all_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, 64 << 20)
    SmallDisk(tmp_path, RESERVE + 600_000, monkeypatch)
    slow, busy = Sender(journal, 9), Sender(journal, 1)
    slow.send(b"begun, ")
    sent = 0
    while journal.flush():
        busy.send(b"x" * 999 + b"\n")
        sent += 1
    assert "No space" in journal.problem and not (tmp_path / "reserve").exists()
    log = ReadyLog(tmp_path)
    log.follow(JournalPosition())
    end = log.advance(JournalPosition(), None)
    assert len(read(tmp_path)) in (sent - 1, sent)
    unread = sent - len(read(tmp_path))
    assert not journal.flush()  # what is kept for new files is not for more data
    commit(tmp_path, "stream", end)
    journal.poll()
    assert journal.flush() and not journal.problem
    assert journal.disk_bytes < 100_000 + RESERVE
    slow.send(b"and ended\n")
    assert journal.flush()
    assert sorted(read(tmp_path, end)) == sorted([b"begun, and ended", *[b"x" * 999] * unread])
    assert journal.held == len(b"begun, and ended\n") + 1000 * unread
    journal.close()


def test_a_completely_read_segment_is_freed_when_no_more_data_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    journal = Journal(tmp_path, 64 << 20)
    sender = Sender(journal, 1)
    sender.send(b"x" * (2 << 20) + b"\nopen, ")
    journal.flush()
    log = ReadyLog(tmp_path)
    log.follow(JournalPosition())
    end = log.advance(JournalPosition(), None)
    commit(tmp_path, "stream", end)
    journal.poll()
    assert journal.disk_bytes < (1 << 20)
    sender.send(b"closed\n")
    journal.flush()
    assert read(tmp_path, end) == [b"open, closed"]
    journal.close()
    assert read(tmp_path, end) == [b"open, closed"]


def test_a_copy_of_a_journal_has_a_log_although_the_only_one_is_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(module, "IDLE_BYTES", 100)
    (tmp_path / "source").mkdir()
    original, copy = tmp_path / "source" / "journal", tmp_path / "copy" / "journal"
    journal = Journal(original, 64 << 20)
    note_begun(original)
    Sender(journal, 1).send(b"x" * 100 + b"\n")
    journal.flush()
    log = ReadyLog(original)
    log.follow(JournalPosition())
    end = log.advance(JournalPosition(), None)
    commit(original, "stream", end)
    copy_file = shutil.copy2

    def late(source: str, target: Path) -> None:
        journal.poll()
        copy_file(source, target)

    monkeypatch.setattr(shutil, "copy2", late)
    copy_tree(tmp_path / "source", tmp_path / "copy")
    journal.close()
    assert not disk.ready_path(original, 1).exists()
    assert disk.numbers(copy) == [2]
    require_journal(copy, end)
    restored = Journal(copy, 64 << 20)
    Sender(restored, 9).send(b"fresh\n")
    restored.flush()
    assert read(copy, end) == [b"fresh"]
    restored.close()
