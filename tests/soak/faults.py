"""Faults of the machine: damaged files, a full disk, read-only directories, clock jumps.

    python -m tests.soak.faults                  everything
    python -m tests.soak.faults --only damage --every    each file of the state directory, not two of each role

The files of a state directory (`tests.soak.damage`) are damaged, cut and removed in turn, after an orderly end and
after kill -9 (`tests.soak.damaged`). Prints a table of what happened; exits with 1 when an outcome was wrong.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.report import Report, finish
from tests.soak.damage import FAULTS, Target, some_of_each, targets
from tests.soak.damaged import GOES_ON, Outcome, Template
from tests.soak.hubs import HubError, LocalHub, RemoteHub
from tests.soak.ledger import Difference
from tests.soak.life import Case, NotRecovered, gone
from tests.soak.places import Clock, SmallDisk, read_only

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3600
Say = Callable[[str], None]
Results = dict[tuple[str, str], Outcome]


def template(root: Path, killed: bool, quarantine: bool = True) -> Template:
    """The state directory of a hub that closed in order, or was killed between the commits of two sinks."""
    name = "killed" if killed else "clean"
    (root / name).mkdir()
    return Template(root / name, name).build("between-sinks@9" if killed else None, quarantine)


def damage_files(
    made: Template, spark: SparkSession, chosen: list[tuple[Target, str]], seed: int, say: Say = lambda text: None
) -> Results:
    """A trial for each file and fault; what happened, by role and fault."""
    results: Results = {}
    untouched = made.trial(spark, None, "", seed)
    if untouched.kind != GOES_ON:
        say(f"WRONG {made.name}, nothing damaged: {untouched.kind} {untouched.said[:600]}")
        return {("nothing damaged", made.name): untouched}
    for target, fault in chosen:
        outcome = made.trial(spark, target, fault, seed)
        key = (f"{made.name} {target.role}", fault)
        if key not in results or not outcome.ok:
            results[key] = outcome
        said = outcome.said.replace("\n", " ")[:300]
        say(f"{'ok' if outcome.ok else 'WRONG'} {made.name} {fault} {target.path}: {outcome.kind} {said}")
    return results


def full_disk(root: Path, spark: SparkSession, what: str) -> Outcome:
    """The disk of the state directory, or of the sinks, is full for a while, twice; the second time the hub is closed
    meanwhile. Then there is room, and everything continues by itself."""
    disk = SmallDisk(root / "disk", 64)
    try:
        places = {"state": root / "state", "out": root / "out"} | {what: disk.path / what}
        case = Case(root, 1, places=places)
        return _outcome(lambda: _fill(case, disk, spark))
    finally:
        disk.close()


def _fill(case: Case, disk: SmallDisk, spark: SparkSession) -> None:
    case.begin(LocalHub(case.state, spark))
    case.heal()
    with disk.full():
        case.feed.more(300)
        case.some_statements(3)
        time.sleep(8)
    case.heal()
    with disk.full():
        case.feed.more(300)
        time.sleep(3)
        case.hub.close()
    case.begin(LocalHub(case.state, spark))
    case.end()
    case.check()


def read_only_state(root: Path, spark: SparkSession) -> Outcome:
    """The state directory cannot be written when a hub is opened, and for a while when it runs."""
    case = Case(root, 2)

    def act() -> None:
        case.begin(LocalHub(case.state, spark))
        case.heal()
        with read_only(case.state):
            case.feed.more(300)
            case.some_statements(3)
            time.sleep(5)
        case.heal()
        case.hub.close()
        with read_only(case.state):
            try:
                LocalHub(case.state, spark).close()
            except HubError as problem:
                if not problem.code or str(case.state) not in problem.text:
                    raise NotRecovered(f"opening a read-only directory: {problem}") from None
            else:
                raise NotRecovered("a hub opened on a read-only directory")
        case.begin(LocalHub(case.state, spark))
        case.end()
        case.check()

    return _outcome(act)


def read_only_sink(root: Path, spark: SparkSession) -> Outcome:
    """A sink's directory cannot be written for longer than its retries: its pipeline fails with a code that names it,
    the others go on, and it can be started again."""
    case = Case(root, 3)

    def act() -> None:
        case.begin(LocalHub(case.state, spark))
        case.heal()
        low = case.feed.written
        with read_only(case.out / "pausing_parquet"):
            case.feed.more(300)
            failed = case.await_failure("pausing")
        if "SINK_FAILED" not in failed and "UNWRITABLE_PATH" not in failed:
            raise NotRecovered(f"the reason has no code: {failed}")
        if "pausing_parquet" not in failed:
            raise NotRecovered(f"the reason does not name the directory: {failed}")
        case.presence["pausing"].change(False, low, case.feed.written)
        case.hub.sql("START PIPELINE pausing")
        case.presence["pausing"].change(True, low, case.feed.written)
        case.feed.more(300)
        case.end()
        case.check()

    return _outcome(act)


def clock_jumps(root: Path, spark: SparkSession) -> Outcome:
    """The clock jumps forward by an hour, back by two, and back to the truth, with a restart in between."""
    del spark  # the clock is set for whole processes: this one needs its own
    clock = Clock(root / "clock")
    case = Case(root, 4)

    def act() -> None:
        for shifts in ((0, HOUR, -HOUR), (HOUR, 0)):
            clock.shift(shifts[0])
            hub = RemoteHub(case.state, root / "said", env=clock.env)
            case.begin(hub.opened())
            case.heal()
            for shift in shifts[1:]:
                clock.shift(shift)
                case.feed.more(200)
                case.some_statements(1)
                case.heal()
            if shifts[-1]:
                hub.close()
                gone(hub)
        case.end()
        case.check()

    return _outcome(act)


def _outcome(act: Callable[[], None]) -> Outcome:
    try:
        act()
    except Difference as difference:
        return Outcome("WRONG RESULT", str(difference))
    except HubError as problem:
        return Outcome("REFUSED" if problem.code else "BARE EXCEPTION", problem.text)
    except AssertionError as problem:
        return Outcome("NOT RECOVERED", str(problem))
    return Outcome(GOES_ON)


PLACES: dict[str, Callable[[Path, SparkSession], Outcome]] = {
    "disk full: state directory": lambda root, spark: full_disk(root, spark, "state"),
    "disk full: sinks": lambda root, spark: full_disk(root, spark, "out"),
    "read-only: state directory": read_only_state,
    "read-only: a sink": read_only_sink,
    "clock jumps": clock_jumps,
}


def table(results: Results) -> list[str]:
    """A line per role: what happened for each fault."""
    roles = sorted({role for role, _ in results})
    width = max(map(len, roles), default=0)
    lines = [f"{'file':{width}}  " + "  ".join(f"{fault:12}" for fault in FAULTS)]
    for role in roles:
        kinds = [results[role, fault].kind if (role, fault) in results else "" for fault in FAULTS]
        lines.append(f"{role:{width}}  " + "  ".join(f"{kind:12}" for kind in kinds))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description="Damage files, disks and clocks, and check the results.")
    parser.add_argument("--seed", type=int, default=1, help="chooses which bit is flipped")
    parser.add_argument("--only", choices=["damage", "places"], help="a part of it")
    parser.add_argument("--ended", choices=["clean", "killed"], help="only directories of hubs that ended in this way")
    parser.add_argument("--match", nargs="+", default=[""], help="only files or places with one of these in their name")
    parser.add_argument("--every", action="store_true", help="every file, not only the newest (and oldest) of a role")
    parser.add_argument("--faults", type=int, default=len(FAULTS), help="only so many faults of each file, by the seed")
    parser.add_argument("--sample", type=int, default=None, help="only so many trials of each template, by the seed")
    parser.add_argument("--without-quarantine", action="store_true", help="no pipeline is left out in the templates")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    arguments = parser.parse_args()
    from headrace.model.program import Meaning
    from headrace.spark.session import start

    def say(text: str) -> None:
        print(text, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    began = time.monotonic()
    root = Path(tempfile.mkdtemp(prefix="headrace-faults-"))
    damaged: Results = {}
    places: dict[str, Outcome] = {}
    trials = 0
    quarantine = not arguments.without_quarantine
    ends = [arguments.ended == "killed"] if arguments.ended else [False, True]
    made = [template(root, killed, quarantine) for killed in ends] if arguments.only != "places" else []
    engine = start("local[2]", root / "spark.log", Meaning())
    engine.spark.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        for one in made:
            found = targets(one.root)
            files = [
                t
                for t in (found if arguments.every else some_of_each(found, one.name == "clean"))
                if any(part in str(t.path) for part in arguments.match)
            ]
            rng = random.Random(arguments.seed)
            chosen = [(target, fault) for target in files for fault in rng.sample(FAULTS, arguments.faults)]
            if arguments.sample is not None:
                chosen = rng.sample(chosen, min(arguments.sample, len(chosen)))
            say(f"{one.name}: {len(found)} files, {len({t.role for t in found})} roles, {len(chosen)} trials")
            damaged |= damage_files(one, engine.spark, chosen, arguments.seed, say)
            trials += len(chosen)
        for name, act in PLACES.items() if arguments.only != "damage" else ():
            if any(part in name for part in arguments.match):
                (root / name.replace(":", "").replace(" ", "-")).mkdir()
                places[name] = act(root / name.replace(":", "").replace(" ", "-"), engine.spark)
                say(f"{'ok' if places[name].ok else 'WRONG'} {name}: {places[name].kind} {places[name].said[:600]}")
    finally:
        engine.stop()
    wrong = [f"{key}: {o.kind}" for key, o in [*damaged.items(), *places.items()] if not o.ok]
    if not wrong:
        shutil.rmtree(root, ignore_errors=True)
    report = Report()
    report.facts |= {"seed": arguments.seed, "minutes": round((time.monotonic() - began) / 60, 1)}
    report.facts |= {"trials": trials, "outcomes": dict(Counter(o.kind for o in damaged.values()))}
    if not arguments.json:
        for line in table(damaged):
            say(line)
    report.facts["table"] = [[*key, o.kind] for key, o in damaged.items()] if arguments.json else "above"
    report.facts["places"] = {name: o.kind for name, o in places.items()}
    if wrong:
        report.facts["kept"] = str(root)
    report.require("soak_faults_wrong_files", sum(not o.ok for o in damaged.values()), 0, "at most")
    report.require("soak_faults_wrong_places", sum(not o.ok for o in places.values()), 0, "at most")
    return finish(report, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
