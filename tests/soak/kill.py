"""Kills by the hundred, each in the middle of work, and a check of every sink.

    python -m tests.soak.kill --rounds 500 --seed 1

A round is one kill: of a hub (SIGKILL, SIGTERM, a fault point), a Python worker, the Python daemon with its workers, a
planning process, an executor (on `local-cluster[2,1,640]`) or the gateway. A case is one state directory: some lives of
a hub with several kills in each, with statements under way, then a check (`tests.soak.life`). Some cases are those of
the short test (`tests.e2e.kills`): `headrace run` on the command line.

Stops at the first difference, keeps that directory, and prints the seed. The same seed makes the same choices; moments
differ a little.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench.report import Report, finish
from tests.e2e import kills
from tests.e2e.test_cluster import own_spark_home
from tests.soak.hubs import HubGone, RemoteHub
from tests.soak.life import Case, NotRecovered, end_hub, gone

IN_PLACE = ("worker", "daemon", "planner", "gateway")
TARGETS = ("hub", *IN_PLACE, "executor")
MASTER = "local-cluster[2,1,640]"
LIVES = 3
KILLS_PER_LIFE = 8
Say = Callable[[str], None]
# The first cases have one of each kind, so that a few rounds already touch every target.
KINDS = ("local", "cluster", "local", "command line", "local")


class Soak:
    """Runs cases in several threads until there were enough kills, or until the first one goes wrong."""

    def __init__(self, rounds: int, seed: int, targets: tuple[str, ...], kinds: tuple[str, ...], keep: Path) -> None:
        self.rounds, self.seed, self.targets, self.kinds, self.keep = rounds, seed, targets, kinds, keep
        self.kills: Counter[str] = Counter()
        self.cases = 0
        self.wrong: list[str] = []
        self.not_recovered: list[str] = []
        self._next = 0
        self._lock = threading.Lock()
        self._hubs: dict[int, RemoteHub] = {}
        self._began = time.monotonic()

    @property
    def over(self) -> bool:
        return bool(self.wrong or self.not_recovered) or self.kills.total() >= self.rounds

    def run(self, jobs: int, say: Say) -> None:
        threads = [threading.Thread(target=self._work, args=(say,)) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, say: Say) -> None:
        while True:
            with self._lock:
                if self.over:
                    return
                number, self._next = self._next, self._next + 1
            kind = self.kinds[number % len(self.kinds)]
            root = Path(tempfile.mkdtemp(prefix=f"headrace-soak-{number}-", dir=self.keep))
            rng = random.Random(f"{self.seed}/{number}")
            history: list[str] = []
            try:
                if kind == "command line":
                    self._command_line(root, rng, history)
                else:
                    self._lives(root, rng, kind == "cluster", history, say)
            except BaseException as problem:
                with self._lock:
                    message = f"case {number} ({kind}) of seed {self.seed}: {type(problem).__name__}: {problem}"
                    (self.not_recovered if isinstance(problem, NotRecovered) else self.wrong).append(message)
                say(f"{message}\n  after {history}\n  kept in {root}")
                return
            finally:
                self._reap(threading.get_ident())
            with self._lock:
                self.cases += 1
                so_far = f"{self.kills.total()} of {self.rounds} kills, {self.cases} directories"
            shutil.rmtree(root, ignore_errors=True)
            say(f"{so_far}, all right, {time.monotonic() - self._began:.0f} s ({kind}, seed {self.seed}/{number})")

    def _count(self, counted: Counter[str]) -> None:
        with self._lock:
            self.kills += counted
        counted.clear()

    # --- a case with several lives ----------------------------------------------------------------

    def _lives(self, root: Path, rng: random.Random, cluster: bool, history: list[str], say: Say) -> None:
        case = Case(root, rng.randrange(1 << 30), rng.choice(["tcp", "http"]), rng.choice([8_000, 30_000]), hosts=True)
        case.history = history
        names = [*IN_PLACE, "executor", "executor", "executor"] if cluster else list(IN_PLACE)
        names = [name for name in names if name in self.targets]
        lives = (2 if cluster else LIVES) if "hub" in self.targets else 1
        try:
            for life in range(lives):
                last = life == lives - 1
                fault = f"{rng.choice(kills.POINTS)}@{rng.randrange(1, 60)}"
                at_point = not last and not cluster and rng.random() < 0.5
                hub = self._open(root, cluster, fault if at_point else None)
                history.append(f"life {life}" + (f" with {fault}" if at_point else ""))
                try:
                    case.begin(hub.opened())
                    for _ in range(KILLS_PER_LIFE if names else 0):
                        if not self.over:
                            case.live(rng.choice(names))
                            self._count(case.kills)
                    if last:
                        case.end()
                        gone(hub)
                        break
                    self._kill_hub(case, hub, rng)
                except HubGone:
                    if not at_point or last:
                        raise NotRecovered(f"the hub ended by itself: {hub.said.read_text()[-2000:]}") from None
                    gone(hub)
                    history.append("died at its fault point")
                    case.kills["hub"] += 1
                self._count(case.kills)
                say(f"{self.kills.total()} of {self.rounds} kills; {root.name}: life {life} is over")
            case.check()
        finally:
            case.sender.stop()

    def _open(self, root: Path, cluster: bool, fault: str | None) -> RemoteHub:
        env = {"HEADRACE_FAULT": fault} if fault else {}
        if cluster:
            home = root / "spark"
            env |= {"SPARK_HOME": str(home if home.exists() else own_spark_home(home)), "SPARK_LOCAL_IP": "127.0.0.1"}
            env["PYSPARK_SUBMIT_ARGS"] = "--conf spark.executor.memory=640m pyspark-shell"
        hub = RemoteHub(root / "state", root / "said", MASTER if cluster else None, env)
        self._hubs[threading.get_ident()] = hub
        return hub

    def _kill_hub(self, case: Case, hub: RemoteHub, rng: random.Random) -> None:
        how = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        statement = case.busy()
        case.history.append(f"{how.name} to the hub")
        end_hub(hub, how)
        case.kills["hub"] += 1
        with contextlib.suppress(HubGone):
            statement()

    def _reap(self, thread: int) -> None:
        """Nothing of a case that went wrong goes on."""
        hub = self._hubs.pop(thread, None)
        for pid in kills.session_of(hub.pid) if hub is not None else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # --- a case on the command line ---------------------------------------------------------------

    def _command_line(self, root: Path, rng: random.Random, history: list[str]) -> None:
        case = kills.Case(root, rows=rng.randrange(500, 5000), epoch_bytes=rng.choice([3_000, 10_000, 60_000]))
        case.prepare()
        for _ in range(rng.randrange(1, 4)):
            if self._kill_run(case, rng, history) == 0:
                break
            self._count(Counter(hub=1))
        if case.run() != 0:
            raise NotRecovered("the last run did not end by itself")
        case.check()

    def _kill_run(self, case: kills.Case, rng: random.Random, history: list[str]) -> int:
        if rng.random() < 0.5:
            seconds, how = rng.uniform(3, 30), rng.choice([signal.SIGKILL, signal.SIGTERM])
            history.append(f"{how.name} after {seconds:.2f} s")
            ended = case.run_and_kill_after(seconds, how)
            return 1 if how is signal.SIGTERM and "waited" in case.said else ended
        history.append(f"{rng.choice(kills.POINTS)}@{rng.randrange(1, 8)}")
        return case.run(history[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill headrace over and over and check what its sinks hold.")
    parser.add_argument("--rounds", type=int, default=500, help="kills in all")
    parser.add_argument("--seed", type=int, default=None, help="make the same choices again")
    parser.add_argument("--jobs", type=int, default=2, help="cases at once")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=TARGETS, help="what to kill; default: each")
    parser.add_argument("--kinds", nargs="+", choices=sorted(set(KINDS)), default=KINDS, help="default: each")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else time.time_ns() % 1_000_000

    def say(text: str) -> None:
        print(text, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    keep = Path(tempfile.gettempdir())
    soak = Soak(arguments.rounds, seed, tuple(arguments.targets), tuple(arguments.kinds), keep)
    began = time.monotonic()
    soak.run(arguments.jobs, say)
    report = Report()
    report.facts |= {"seed": seed, "directories": soak.cases, "minutes": round((time.monotonic() - began) / 60, 1)}
    report.facts |= {f"rounds {target}": soak.kills[target] for target in TARGETS}
    if soak.wrong or soak.not_recovered:
        report.facts["wrong"] = [*soak.wrong, *soak.not_recovered]
    report.require("soak_kill_rounds", soak.kills.total(), arguments.rounds, "at least")
    report.require("soak_kill_differences", len(soak.wrong), 0, "at most")
    report.require("soak_kill_not_recovered", len(soak.not_recovered), 0, "at most")
    return finish(report, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
