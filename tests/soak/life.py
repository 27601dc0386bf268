"""One state directory through several lives of a hub: everything a soak does to it, and the check at the end.

A file stream with pipelines that live through, join, leave, pause and are replaced, and a pushed stream with a sender
that keeps account. Sinks: JSON lines, Parquet, memory, dead letters. With `hosts` there are also a pipeline on the
dedicated host and a chain: a pipeline that feeds the stream of two others. A `Case` knows what it did; `check` compares
it with what the sinks hold.
"""

from __future__ import annotations

import base64
import contextlib
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.kills import session_of
from tests.soak.hubs import Driven, HubError, RemoteHub, wait_for
from tests.soak.ledger import Difference, Presence, Visible, column, once, same
from tests.soak.processes import kill, victims
from tests.soak.traffic import Feed, Sender, windows

HEAL_SECONDS = 300.0  # a cluster's first epoch took more than 150 s on a machine with three times its load
VISITORS = 3  # at once, besides the five that live through
HOSTS = (
    "CREATE PIPELINE own INTO own_jsonl, own_parquet WITH (host = 'dedicated') AS "
    "SELECT id, k, v FROM s WHERE v % 3 <> 0",
    "CREATE PIPELINE clean INTO STREAM good AS SELECT id, k, v, ts FROM s WHERE v % 3 <> 0",
    "CREATE PIPELINE chained INTO chained_jsonl AS SELECT id, k, v FROM good",
    "CREATE PIPELINE chainedcounts INTO chainedwindows_parquet AS SELECT unix_seconds(window.start) AS start, k, "
    "count(*) AS n FROM good GROUP BY window(ts, '10 seconds'), k",
)


class NotRecovered(AssertionError):
    """A stream did not come back by itself, or something failed that should not."""


@dataclass
class Case:
    """See the module. `pushed` is the kind of the pushed stream, `seed` chooses everything that is random. `places` are
    other directories for `state` and `out`, the sinks, than those below `root`."""

    root: Path
    seed: int
    pushed: str = "tcp"
    epoch_bytes: int = 20_000
    hosts: bool = False
    places: dict[str, Path] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.feed = Feed(self.root / "in")
        self.state, self.out = (self.places.get(name, self.root / name) for name in ("state", "out"))
        self.every = Visible(self.out / "every_jsonl")
        self.arrived = Visible(self.out / "arrived_jsonl")
        self.filtered = [Visible(self.out / name) for name in ("own_jsonl", "chained_jsonl")] if self.hosts else []
        self.presence: dict[str, Presence] = {"pausing": Presence()}
        self.mark = 0
        self.taken_back: set[int] = set()  # marks of replacements that did not stay
        self._visitors = 0
        self._pick = 0.0
        self._low = 0  # rows that were visible before the newest statement began
        self._port = free_port()
        self._hub: Driven | None = None
        self.sender = Sender(self.pushed, self._address, self.seed)
        self.feed.more(200)

    # --- a hub's life -----------------------------------------------------------------------------

    @property
    def hub(self) -> Driven:
        assert self._hub is not None
        return self._hub

    def begin(self, hub: Driven) -> None:
        """A hub was opened on the directory: see what it found, and declare what is not there yet."""
        self._hub = hub
        states = hub.states()
        if "every" not in states:
            hub.sql(self._script())
            states = hub.states()
        self._settle(states)
        if not self.sender.is_alive():
            self.sender.start()
        self._first_memory = len(self.every.look())

    def live(self, target: str) -> None:
        """New input, a statement under way, and a kill in the middle of it; then wait until all is well."""
        self.feed.more(self.rng.randrange(50, 500))
        statement = self._under_way()
        time.sleep(self.rng.uniform(0, 1.2))
        hit = kill(victims(self.hub.pid, target, self.rng))
        self.history.append(f"kill {target}" + ("" if hit else " (none there)"))
        self.kills[target] += hit > 0
        self.feed.more(self.rng.randrange(50, 200))
        statement()
        self.heal()

    def busy(self) -> Callable[[], None]:
        """New input and a statement under way, for a kill of the hub itself at a random moment."""
        self.feed.more(self.rng.randrange(50, 500))
        statement = self._under_way()
        time.sleep(self.rng.uniform(0, 2.5))
        return statement

    def heal(self) -> None:
        """Wait until everything that was written and acknowledged is visible and no pipeline has failed."""
        acknowledged = set(self.sender.acknowledged)
        written, kept = self.feed.written, len(_kept(self.feed.written))

        def well() -> bool:
            behind = [sink for sink in self.filtered if len(sink.look()) < kept]
            return not behind and len(self.every.look()) >= written and acknowledged <= self.arrived.look()

        deadline = time.monotonic() + HEAL_SECONDS
        while not well():
            if time.monotonic() > deadline:
                raise NotRecovered(f"not within {HEAL_SECONDS:g} s: {self._troubles()}")
            time.sleep(0.3)
            self.hub.states()  # raises HubGone when the hub has ended
        self._settle(self.hub.states())

    def _troubles(self) -> str:
        missing = len(set(self.sender.acknowledged) - self.arrived.look())
        return (
            f"{len(self.every.ids)} of {self.feed.written} rows of files visible, {missing} acknowledged records not; "
            f"of {len(_kept(self.feed.written))} rows {[(s.path.name, len(s.ids)) for s in self.filtered]} visible; "
            f"problems {self.hub.problems()}; states {self.hub.states()}"
        )

    def _settle(self, states: dict[str, str]) -> None:
        """Bring the ledger up to date with what a hub says of its pipelines."""
        failed = {name: state for name, state in states.items() if state.startswith("failed")}
        if failed:
            raise NotRecovered(f"pipelines failed: {failed}")
        for name, presence in self.presence.items():
            running = _runs(states.get(name, "stopped"))
            if running != presence.on:  # a statement that was cut off: it took effect at some time since
                presence.change(running, self._low, self.feed.written)

    def _address(self) -> str:
        return f"{self.pushed}://127.0.0.1:{self._port}" + ("/ingest/t" if self.pushed == "http" else "")

    # --- statements -------------------------------------------------------------------------------

    def _script(self) -> str:
        sinks = {
            name: f"type = '{name.split('_')[1]}', path = '{self.out / name}'"
            for name in (
                "every_jsonl", "arrived_jsonl", "rows_parquet", "rows_jsonl", "windows_parquet", "windows_jsonl",
                "letters_jsonl", "swapped_jsonl", "pausing_parquet", "arrivals_parquet",
            )
        }  # fmt: skip
        if self.hosts:
            for name in ("own_jsonl", "own_parquet", "chained_jsonl", "chainedwindows_parquet"):
                sinks[name] = f"type = '{name.split('_')[1]}', path = '{self.out / name}'"
        sinks["seen_memory"] = "type = 'memory'"
        acks = ", acks = 'true'" if self.pushed == "tcp" else ""
        return ";\n".join(
            [
                *(f"CREATE SINK {name} WITH ({options})" for name, options in sinks.items()),
                "CREATE STREAM s (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 3 "
                f"SECONDS) WITH (source = 'files', format = 'json', path = '{self.feed.directory}', "
                f"max_epoch_bytes = '{self.epoch_bytes}', on_error = 'dead_letter', dead_letter_sink = "
                "'letters_jsonl')",
                "CREATE STREAM t (id BIGINT, k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 3 SECONDS) WITH "
                f"(source = '{self.pushed}', format = 'json', listen = '127.0.0.1:{self._port}'{acks})",
                "CREATE PIPELINE every INTO every_jsonl AS SELECT id FROM s",
                "CREATE PIPELINE rows INTO rows_parquet, rows_jsonl AS SELECT id, k, v FROM s WHERE v % 3 <> 0",
                "CREATE PIPELINE counted INTO windows_parquet, windows_jsonl AS SELECT unix_seconds(window.start) AS "
                "start, k, count(*) AS n, sum(v) AS total FROM s GROUP BY window(ts, '10 seconds'), k",
                "CREATE PIPELINE swapped INTO swapped_jsonl AS SELECT id, 0 AS mark FROM s",
                "CREATE PIPELINE pausing INTO pausing_parquet AS SELECT id FROM s",
                "CREATE PIPELINE seen INTO seen_memory AS SELECT id FROM s",
                "CREATE PIPELINE arrived INTO arrived_jsonl AS SELECT id, k FROM t",
                "CREATE PIPELINE arrivals INTO arrivals_parquet AS SELECT k, count(*) AS n FROM t "
                "GROUP BY window(ts, '1 hour'), k",
                *(HOSTS if self.hosts else ()),
            ]
        )

    def some_statements(self, count: int) -> None:
        """Statements one after the other. Each may fail, but only with a code."""
        for _ in range(count):
            self._under_way()()

    def await_failure(self, pipeline: str) -> str:
        """Wait until a pipeline has failed; why it did."""
        deadline = time.monotonic() + HEAL_SECONDS
        while not (state := self.hub.states()[pipeline]).startswith("failed"):
            if time.monotonic() > deadline:
                raise NotRecovered(f"{pipeline} did not fail but is {state}")
            time.sleep(0.2)
        return state

    def _under_way(self) -> Callable[[], None]:
        """Begin a statement in a thread of its own, or none; what is returned waits for it."""
        act = self.rng.choice([self._join, self._leave, self._replace, self._pause, None])
        if act is None:
            return lambda: None
        self._low, self._pick = len(self.every.look()), self.rng.random()
        problems: list[BaseException] = []

        def run() -> None:
            try:
                act()
            except BaseException as problem:
                problems.append(problem)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def joined() -> None:
            thread.join()
            if problems:
                raise problems[0]

        return joined

    def _do(self, text: str) -> bool:
        """Run a statement; whether it stands. It may fail with a code, because things are killed."""
        self.history.append(text.split(" INTO ")[0])
        try:
            self.hub.sql(text)
        except HubError as problem:
            if not problem.code:
                raise NotRecovered(f"a bare exception for {text!r}: {problem.text}") from None
            self.history[-1] += f" -> {problem.code}"
            return False
        return True

    def _join(self) -> None:
        if sum(p.on for p in self.presence.values()) > VISITORS:
            return self._leave()
        name = f"visitor_{self._visitors}"
        self._visitors += 1
        self.presence[name] = Presence()
        stands = self._do(
            f"CREATE SINK {name}_jsonl WITH (type = 'jsonl', path = '{self.out / name}_jsonl');"
            f"CREATE PIPELINE {name} INTO {name}_jsonl AS SELECT id FROM s"
        )
        self._note(name, True, stands)

    def _leave(self) -> None:
        names = [name for name, p in self.presence.items() if p.on and name != "pausing"]
        if names:
            name = names[int(self._pick * len(names))]
            self._note(name, False, self._do(f"STOP PIPELINE {name}"))

    def _pause(self) -> None:
        on = not self.presence["pausing"].on
        self._note("pausing", on, self._do(f"{'START' if on else 'STOP'} PIPELINE pausing"))

    def _note(self, name: str, on: bool, stands: bool) -> None:
        """What a statement did to a pipeline. One that failed may have held for some epochs before it was taken back.
        One that was cut off is noted when the next hub tells, by `_settle`."""
        presence = self.presence[name]
        presence.change(on, self._low, self.feed.written)
        if not stands:
            now = _runs(self.hub.states().get(name, "stopped"))
            if now != on:
                presence.change(now, self._low, self.feed.written)

    def _replace(self) -> None:
        self.mark += 1
        mark = self.mark
        self.taken_back.add(mark)  # until it is known to stand
        if self._do(f"CREATE OR REPLACE PIPELINE swapped INTO swapped_jsonl AS SELECT id, {mark} AS mark FROM s"):
            self.taken_back.discard(mark)

    # --- the end ----------------------------------------------------------------------------------

    def end(self) -> None:
        """Let everything come out, close all windows and stop; then check."""
        self.feed.more(100)
        self.sender.finish()
        self.heal()
        self._check_memory()
        on = [name for name, presence in self.presence.items() if presence.on]
        self.hub.sql(
            "; ".join(
                [f"STOP PIPELINE {name}" for name in ("every", "rows", "swapped", "seen", "arrived", *on)]
                + [f"STOP PIPELINE {name} GRACEFUL CLOSE WINDOWS" for name in ("counted", "arrivals")]
                + (["STOP PIPELINE own", "STOP PIPELINE chained"] if self.hosts else [])
                + (["STOP PIPELINE chainedcounts GRACEFUL CLOSE WINDOWS"] if self.hosts else [])
            )
        )
        self.hub.close()

    def _check_memory(self) -> None:
        """A memory sink holds each row of this life once: from where its first epoch began to the end. `heal` waits for
        the sinks of other pipelines, and an epoch commits its pipelines one after the other."""
        last = self.feed.written - 1
        wait_for(lambda: last in self.hub.memory("seen"), HEAL_SECONDS)
        ids = self.hub.memory("seen")
        once("seen_memory", ids, range(self._first_memory, self.feed.written), range(self.feed.written))
        if len(ids) != self.feed.written - min(ids):
            raise Difference(f"seen_memory: {len(ids)} rows, but they begin with {min(ids)} of {self.feed.written}")

    def check(self) -> None:
        """Everything that must be in the sinks is there once, and nothing else."""
        total = self.feed.written
        everything = range(total)
        once("every", column(self.out / "every_jsonl", "id"), everything, ())
        rows = _kept(total)
        for name in ("rows_parquet", "rows_jsonl", *(("own_jsonl", "own_parquet", "chained_jsonl") * self.hosts)):
            same(name, column(self.out / name, "id", "k", "v"), rows)
        if self.hosts:
            found = column(self.out / "chainedwindows_parquet", "start", "k", "n")
            same("chainedwindows", found, [(start, k, n) for start, k, n, _ in windows(total, lambda v: v % 3 != 0)])
        for name in ("windows_parquet", "windows_jsonl"):
            same(name, column(self.out / name, "start", "k", "n", "total"), windows(total))
        swapped = column(self.out / "swapped_jsonl", "id", "mark")
        once("swapped", [i for i, _ in swapped], everything, ())
        marks = [mark for _, mark in sorted(swapped) if mark not in self.taken_back]
        if marks != sorted(marks) or not set(marks) <= set(range(self.mark + 1)):
            raise Difference("swapped: an older definition came after a newer one")
        letters = [base64.b64decode(raw).decode() for raw in column(self.out / "letters_jsonl", "raw")]
        same("letters", letters, self.feed.bad)
        for name, presence in self.presence.items():
            path = self.out / ("pausing_parquet" if name == "pausing" else f"{name}_jsonl")
            presence.check(name, column(path, "id"), total)
        self._check_pushed()
        for sink in self.out.glob("*_*"):
            for file in (sink / "_headrace" / "staging").rglob("*"):
                if file.is_file():
                    raise Difference(f"{file} is left over")

    def _check_pushed(self) -> None:
        arrived = column(self.out / "arrived_jsonl", "id", "k")
        ids = [i for i, _ in arrived]
        once("arrived", ids, self.sender.acknowledged, (i for ids in self.sender.doubtful for i in ids))
        if self.pushed == "http":
            halves = [r for r in self.sender.doubtful if 0 < len(set(r) & set(ids)) < len(r)]
            if halves:
                raise Difference(f"arrived: requests that were taken in part: {halves[:3]}")
        counts = Counter(k for _, k in arrived)
        same("arrivals", column(self.out / "arrivals_parquet", "k", "n"), list(counts.items()))


def _kept(total: int) -> list[tuple[int, str | None, int]]:
    """The rows of the first `total` that the filter v % 3 <> 0 lets through."""
    return [(i, f"k{i % 5}" if i % 7 else None, i * 31 % 1000) for i in range(total) if i * 31 % 1000 % 3]


def _runs(state: str) -> bool:
    """Whether a pipeline in this state, with or without a reason, is part of its stream."""
    return state.partition(":")[0] not in ("stopped", "stopping")


def end_hub(hub: RemoteHub, how: signal.Signals) -> None:
    """A signal to the process of a hub; returns when nothing of it is left."""
    hub.signal(how)
    gone(hub)


def gone(hub: RemoteHub) -> None:
    """Wait for the end of a hub that is ending, with all its processes."""
    code = hub.wait()
    if code not in (0, -signal.SIGKILL):
        raise NotRecovered(f"the hub ended with {code}: {hub.said.read_text()[-2000:]}")
    if not wait_for(lambda: not session_of(hub.pid), 60):
        raise NotRecovered(f"processes of a hub that ended are left: {session_of(hub.pid)}")


def free_port() -> int:
    """A port on which no process listens at the moment."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port: int = probe.getsockname()[1]
        return port
