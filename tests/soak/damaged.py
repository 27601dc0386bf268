"""A state directory with a file damaged, opened again: does it go on with right results, or say what is wrong?

A `Template` is a directory that a hub left behind, after an orderly end or after kill -9. A `trial` puts it back in its
place, damages one file, opens a hub on it and gives it more input. All hubs share one Spark session.

What may happen: *goes on* (every row is in its sink exactly once), or a *coded error* that names the file, with nothing
wrong in any sink; then the other stream must still go on, unless the file belongs to the whole hub.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import errors
from tests.soak.damage import Target, damage
from tests.soak.hubs import Driven, HubError, HubGone, LocalHub, RemoteHub, wait_for
from tests.soak.ledger import Difference, Visible, column, once, same
from tests.soak.life import free_port, gone
from tests.soak.processes import kill, victims
from tests.soak.traffic import Feed, windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 150.0  # without any progress: a busy machine needs a minute for the first epoch
BACKLOG = 400  # rows
CODES = {kind.code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")}
_CODE = re.compile(r"\b[A-Z]+(?:_[A-Z]+)+\b")
GOES_ON, CODED = "goes on", "coded error"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trial ended: `goes on`, `coded error`, or what was wrong; and the messages of the hub."""

    kind: str
    said: str = ""

    @property
    def ok(self) -> bool:
        return self.kind in (GOES_ON, CODED)


@dataclass
class Template:
    """See the module. What was written, sent and acknowledged so far is its ledger."""

    root: Path
    name: str
    port: int = field(default_factory=lambda: free_port())
    acknowledged: set[int] = field(default_factory=set)
    doubtful: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.feed = Feed(self.root / "in")

    @property
    def kept(self) -> Path:
        return self.root / "template"

    def build(self, fault: str | None, quarantine: bool = True) -> Template:
        """Let a hub in a process of its own work, and end: in order, or at a fault point. With `quarantine` one of its
        pipelines kills workers and is left out: there is a quarantine list."""
        crash = self.root / "crash"
        env = {"HEADRACE_CRASH": str(crash)} | ({"HEADRACE_FAULT": fault} if fault else {})
        hub = RemoteHub(self.root / "state", self.root / "said", env=env)
        with contextlib.suppress(HubGone):
            self.work(hub.opened(), crash if quarantine else None)
            if fault is None:  # what was just written and sent is not read yet
                hub.close()
            rows = Visible(self.root / "out" / "rows_jsonl")
            for _ in range(400):  # until the fault point ends it
                if self.feed.written - len(rows.look()) < BACKLOG:  # trials must not spend their time on it
                    self.feed.more(50)
                hub.states()
                time.sleep(0.3)
            hub.signal(signal.SIGKILL)
        gone(hub)
        return self.keep()

    def work(self, hub: Driven, crash: Path | None = None) -> None:
        """Declare everything, write and send. A pipeline that kills its worker is named in the file `crash`."""
        self.feed.more(150)
        hub.sql(self._script())
        self.send(100)
        kill(victims(hub.pid, "gateway", random.Random(0)))  # a new gateway begins new files of the journal
        if crash is not None:
            crash.write_text("guilty\n")
            hub.sql("CREATE SINK g WITH (type = 'memory'); CREATE PIPELINE guilty INTO g AS SELECT k FROM s")
        self.feed.more(150)
        if crash is not None:
            if not wait_for(lambda: hub.states()["guilty"].startswith("failed"), 300):
                raise AssertionError("the guilty pipeline was not found")
            crash.unlink()
        if not wait_for(lambda: self.acknowledged <= self._arrived(), 300):
            raise AssertionError(f"what was acknowledged does not arrive: {hub.problems()}")
        wait_for(lambda: self.send(300), 30)
        self.feed.more(200)

    def keep(self) -> Template:
        """Make the current directory the template."""
        for name in ("state", "out"):
            shutil.copytree(self.root / name, self.kept / name, symlinks=True, ignore=shutil.ignore_patterns("*.sock"))
        return self

    def _script(self) -> str:
        out = self.root / "out"
        return f"""
            CREATE SINK rows_jsonl WITH (type = 'jsonl', path = '{out}/rows_jsonl');
            CREATE SINK rows_parquet WITH (type = 'parquet', path = '{out}/rows_parquet');
            CREATE SINK windows_parquet WITH (type = 'parquet', path = '{out}/windows_parquet');
            CREATE SINK arrived_jsonl WITH (type = 'jsonl', path = '{out}/arrived_jsonl');
            CREATE STREAM s (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 3 SECONDS)
              WITH (source = 'files', format = 'json', path = '{self.feed.directory}', max_epoch_bytes = '12000',
                    on_error = 'skip');
            CREATE STREAM t (id BIGINT) WITH (source = 'tcp', format = 'json', listen = '127.0.0.1:{self.port}',
              acks = 'true', max_epoch_bytes = '2000');
            CREATE PIPELINE rows INTO rows_jsonl, rows_parquet AS SELECT id FROM s;
            CREATE PIPELINE counted INTO windows_parquet AS SELECT unix_seconds(window.start) AS start, k,
              count(*) AS n, sum(v) AS total FROM s GROUP BY window(ts, '10 seconds'), k;
            CREATE PIPELINE arrived INTO arrived_jsonl AS SELECT id FROM t
        """

    def send(self, count: int) -> bool:
        """Send records. True if all were acknowledged."""
        first = len(self.acknowledged) + len(self.doubtful)
        ids = range(first, first + count)
        data = "".join(json.dumps({"id": i}) + "\n" for i in ids).encode()
        answer = b""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 10) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while piece := client.recv(4096):
                answer += piece
        safe = int((answer.split() or [b"0"])[-1]) == len(data)
        (self.acknowledged if safe else self.doubtful).update(ids)
        return safe

    def _arrived(self) -> set[int]:
        return set(column(self.root / "out" / "arrived_jsonl", "id"))

    # --- a trial ----------------------------------------------------------------------------------

    def trial(self, spark: SparkSession, target: Target | None, fault: str, seed: int) -> Outcome:
        """Damage one file (none: only go on) of a fresh copy, and see."""
        for name in ("state", "out"):
            shutil.rmtree(self.root / name, ignore_errors=True)
            subprocess.run(["cp", "-a", str(self.kept / name), str(self.root / name)], check=True)
        now = Template(self.root, self.name, self.port, set(self.acknowledged), set(self.doubtful))
        now.feed = self.feed.copy()
        before = {name: column(self.root / "out" / name, "id") for name in ("rows_jsonl", "arrived_jsonl")}
        if target is not None:
            damage(self.root / target.path, fault, random.Random(f"{seed}/{target.path}/{fault}"))
        try:
            return _Trial(now, target, before).run(spark)
        finally:
            now.feed.take_back(self.feed)


class _Trial:
    def __init__(self, now: Template, target: Target | None, before: dict[str, list[Any]]) -> None:
        self.now, self.target, self.before = now, target, before
        self.out = now.root / "out"
        self.rows, self.arrived = Visible(self.out / "rows_jsonl"), Visible(self.out / "arrived_jsonl")

    def run(self, spark: SparkSession) -> Outcome:
        hub: LocalHub | None = None
        try:
            hub = LocalHub(self.now.root / "state", spark)
            self.now.feed.more(60)
            wait_for(lambda: self.now.send(20), 3, every=0.5)
            outcome = self._watch(hub)
        except HubError as problem:
            outcome = self._refused(problem)
        finally:
            if hub is not None:
                with contextlib.suppress(HubError):
                    hub.close(drain=False)
        try:
            self._check(outcome.kind == GOES_ON)
        except Difference as difference:
            return Outcome("WRONG RESULT", f"{difference}; {outcome.said}")
        return outcome

    def _watch(self, hub: Driven) -> Outcome:
        """Wait until all rows of both streams are in the sinks, or the hub names the damage."""
        deadline = time.monotonic() + PATIENCE
        said, seen = "", (0, 0)
        while True:
            rows, arrived = self.rows.look(), self.arrived.look()
            s = len(rows) >= self.now.feed.written
            t = self.now.acknowledged <= arrived
            if (len(rows), len(arrived)) != seen:
                seen, deadline = (len(rows), len(arrived)), time.monotonic() + PATIENCE
            if s and t:
                return self._ended(hub)
            said = self._said(hub)
            stream = None if self.target is None else self.target.stream
            others = (t or stream == "t") and (s or stream == "s")
            if (others or stream is None) and self._names(said):
                return self._judged(said)
            if time.monotonic() > deadline:
                break
            time.sleep(0.3)
        if not said:
            return Outcome("SILENT", f"s {'right' if s else 'stands'}, t {'right' if t else 'stands'}, nothing is said")
        judged = self._judged(said)
        return judged if not judged.ok or others or stream is None else Outcome("OTHERS STOPPED", said)

    def _said(self, hub: Driven) -> str:
        """The problems that the hub reports."""
        words = [f"{name}: {text}" for name, text in hub.problems().items() if text]
        words += [f"{name}: {text}" for name, text in hub.states().items() if ":" in text and name != "guilty"]
        return "\n".join(words)

    def _ended(self, hub: Driven) -> Outcome:
        try:
            hub.sql("STOP PIPELINE rows; STOP PIPELINE arrived; STOP PIPELINE counted GRACEFUL CLOSE WINDOWS")
        except HubError as problem:
            judged = self._refused(problem)
            return judged if not judged.ok else Outcome(CODED, problem.text)
        return Outcome(GOES_ON)

    def _refused(self, problem: HubError) -> Outcome:
        """The hub did not open, or refused a statement."""
        if not problem.code:
            return Outcome("BARE EXCEPTION", problem.text.strip().split("\n")[-1])
        judged = self._judged(problem.text)
        if judged.ok and self.target is not None and self.target.stream is not None:
            return Outcome("OTHERS STOPPED", problem.text)
        return judged

    def _judged(self, said: str) -> Outcome:
        if not CODES & set(_CODE.findall(said)):
            return Outcome("NO CODE", said)
        return Outcome(CODED if self._names(said) else "FILE NOT NAMED", said)

    def _names(self, said: str) -> bool:
        """True if the text names the damaged file or its directory."""
        if self.target is None:
            return False
        path = self.now.root / self.target.path
        return bool(CODES & set(_CODE.findall(said))) and (path.name in said or str(path.parent) in said)

    def _check(self, whole: bool) -> None:
        """Nothing is doubled or made up, and nothing that was visible is gone; when it went on, all of it is there."""
        written = self.now.feed.written
        rows = column(self.out / "rows_jsonl", "id")
        once("rows_jsonl", rows, range(written) if whole else self.before["rows_jsonl"], range(written))
        once("rows_parquet", column(self.out / "rows_parquet", "id"), range(written) if whole else (), range(written))
        arrived, known = column(self.out / "arrived_jsonl", "id"), self.now.acknowledged
        may = known | self.now.doubtful
        once("arrived_jsonl", arrived, known if whole else self.before["arrived_jsonl"], may)
        found = column(self.out / "windows_parquet", "start", "k", "n", "total")
        if whole:
            same("windows_parquet", found, windows(written))
        elif not Counter(found) <= Counter(windows(written)):
            raise Difference(f"windows_parquet: {list((Counter(found) - Counter(windows(written))).items())[:3]}")
