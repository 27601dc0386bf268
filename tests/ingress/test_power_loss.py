"""Power losses at any moment: what was synced is read once, addresses never go back, and what is taken later is read.

`tests.power_loss` says what may be missing afterwards. A `Life` is a journal with its planner, from one power loss to
the next one.
"""

from __future__ import annotations

import dataclasses
import os
import random
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headrace.ingress.journal import Journal
from headrace.ingress.mark import note_begun, require_journal
from headrace.ingress.settings import JournalSettings
from headrace.model.definitions import StreamDef
from headrace.model.schema import Schema
from headrace.sources.journal_reader import JOURNAL, JournalSource
from tests.ingress.test_journal import MEMORY, Sender, _runs
from tests.power_loss import Disk
from tests.strategies import examples

Offset = dict[str, Any]
STREAM = StreamDef("s", Schema(()), None, 0, "tcp", "text", {})
NOWHERE: Offset = {"file": 0, "pos": 0, "address": 0}


@dataclass(frozen=True, slots=True)
class Known:
    """What must hold after a power loss now. `synced` are the records that a sync or an epoch has made safe, `taken`
    all that were acknowledged or may have been. `done` were read by epochs that are committed, up to `start`. `planned`
    is the end of the epoch that runs."""

    synced: frozenset[bytes] = frozenset()
    taken: frozenset[bytes] = frozenset()
    done: tuple[bytes, ...] = ()
    start: Offset = dataclasses.field(default_factory=lambda: NOWHERE)
    planned: Offset | None = None


class Life:
    """See the module. It begins with what is known from the lives before."""

    def __init__(self, root: Path, known: Known, chances: random.Random) -> None:
        self.root, self.known, self._chances = root, known, chances
        directory = root / JOURNAL
        require_journal(directory)  # as the gateway opens it
        self.journal = Journal(directory, chances.choice([300, 700, 1 << 20]))
        note_begun(directory)
        self.source = JournalSource(STREAM, JournalSettings(), root, lambda: 0.0)
        self._senders: list[Sender] = []
        self._rest: dict[int, bytes] = {}

    def step(self) -> None:
        """Do one thing that a gateway or a planner does."""
        deeds = [self.send] * 6 + [self.flush] * 3 + [self.plan, self.commit] * 2 + [self.sync, self.journal.poll]
        self._chances.choice(deeds)()

    def learn(self, **facts: Any) -> None:
        self.known = dataclasses.replace(self.known, **facts)

    def send(self) -> None:
        """One piece of a connection's bytes, cut anywhere."""
        if not self._senders or self._chances.random() < 0.2:
            self._senders.append(Sender(self.journal, len(self._senders) + 1))
        sender = self._chances.choice(self._senders)
        lines = [
            f"{self._chances.getrandbits(60):015x}{'x' * self._chances.randrange(60)}"
            for _ in range(self._chances.randrange(3))
        ]
        data = self._rest.get(sender.origin, b"") + "".join(f"{line}\n" for line in lines).encode()
        place = self._chances.randint(0, len(data))
        self._rest[sender.origin] = data[place:]
        if place:
            sender.send(data[:place])
            self.learn(taken=self.known.taken | self._whole())

    def _whole(self) -> frozenset[bytes]:
        return frozenset(line for sender in self._senders for line in sender.whole)

    def flush(self) -> None:
        assert self.journal.flush(), self.journal.problem

    def sync(self) -> None:
        """Afterwards a power loss cannot remove what was acknowledged before."""
        self.flush()
        whole = self._whole()
        self.journal.sync()
        self.learn(synced=self.known.synced | whole)

    def plan(self) -> None:
        """Plan an epoch. Spark logs its end before its tasks run."""
        if self.known.planned is None:
            end = self.source.latest(self.known.start, self._chances.choice([1, 100, None]))
            if end != self.known.start:
                read = self.read(self.known.start, end)
                self.learn(planned=end, synced=self.known.synced | frozenset(read))

    def commit(self) -> None:
        """The sinks commit the epoch, and Spark asks for the next one."""
        if self.known.planned is not None:
            read = self.read(self.known.start, self.known.planned)
            self.learn(done=self.known.done + tuple(read), start=self.known.planned, planned=None)
            self.source.latest(self.known.start, 1)  # lets the journal forget it

    def read(self, start: Offset, end: Offset) -> list[bytes]:
        """The records of an epoch, as its tasks read them."""
        groups = self.source.groups(start, end, 2)
        found = [run for group in groups for stretch in group for run in _runs(self.root / JOURNAL, stretch)]
        return [line for run in found for line in run.splitlines()]

    def read_all(self) -> list[bytes]:
        """Run epochs until nothing is left: the one that was planned first, with the same end."""
        self.commit()
        while True:
            self.plan()
            if self.known.planned is None:
                return list(self.known.done)
            self.commit()

    def die(self) -> None:
        """Release the handles. Nothing is flushed or synced."""
        for part in (self.journal._mark, self.journal._log, self.journal._syncs):
            part.close()
        os.close(self.journal._lock)


def live(root: Path, known: Known, chances: random.Random) -> Known:
    """A life with a power loss at some moment. Returns what was known at that moment."""
    lives: list[Life] = []
    recorded = Disk(root, lambda: lives[0].known if lives else known)
    with recorded.recording():
        lives.append(Life(root, known, chances))
        for _ in range(chances.randrange(40)):
            lives[0].step()
    lives[0].die()
    moment = chances.choice(recorded.moments)
    recorded.after_power_loss(moment, chances)
    facts: Known = moment.facts
    if chances.random() < 0.5:  # Spark's log has lost the epoch in flight, so it is planned anew
        facts = dataclasses.replace(facts, planned=None)
    return facts


def check(root: Path, known: Known, chances: random.Random) -> None:
    """Everything that must hold after a power loss."""
    life = Life(root, known, chances)
    try:
        highest = max(known.start["address"], (known.planned or NOWHERE)["address"])
        assert life.journal.address >= highest, "addresses never go back"
        sender = Sender(life.journal, 7)
        sender.send(b"after the power loss\n")
        life.flush()
        found = life.read_all()
        assert max(Counter(found).values()) == 1, "nothing comes twice"
        assert set(found) <= known.taken | {b"after the power loss"}, "nothing is invented"
        missing = known.synced - set(found)
        assert not missing, "what was synced is there"
        assert found[-1] == b"after the power loss"
        gone = sum(len(line) + 1 for line in known.taken - set(found))
        assert life.journal.lost <= gone, "nothing is reported as lost that is there"
    finally:
        life.die()


def lose_power(chances: random.Random, lives: int) -> None:
    """Some lives of a journal, each with a power loss, and then the check."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.ingress.journal_reserve.RESERVE", 64)
        root, known = Path(directory) / "source", Known()
        root.mkdir()
        for number in range(lives + 1):
            for module in ("journal", "recovery"):
                patch.setattr(f"headrace.ingress.{module}.boot", lambda number=number: f"boot {number}")
            if number < lives:
                known = live(root, known, chances)
        check(root, known, chances)


@settings(
    max_examples=examples(60),
    suppress_health_check=list(HealthCheck),
    deadline=None,
    phases=[Phase.reuse, Phase.generate],
)
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_what_was_synced_is_read_once_after_any_power_losses(seed: int, lives: int) -> None:
    lose_power(random.Random(seed), lives)


@pytest.mark.parametrize(
    ("seed", "lives"),
    [
        (397, 1),  # the note that there was a journal is on disk, the journal is not
        (440, 1),  # a log that was read is there again, its segment is not
        (100152, 2),  # the mark names a log that was deleted, and no later one is left
        (500029, 2),  # the power fails again while a torn log is deleted: its segment is left
    ],
)
def test_power_losses_that_were_taken_for_damage(seed: int, lives: int) -> None:
    lose_power(random.Random(seed), lives)
