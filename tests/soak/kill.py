"""Hundreds of kills (SIGKILL, SIGTERM): random moments and fault points, on one state directory after the other.

    python -m tests.soak.kill --rounds 300 --seed 1

A round is one kill. After a few kills the run may finish, the sinks are checked, and a new directory begins. Stops at
the first wrong row, keeps that directory, and says how to repeat it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.kills import POINTS, Case


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill headrace over and over and check what its sinks hold.")
    parser.add_argument("--rounds", type=int, default=200, help="kills in all")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run (moments in time will differ a little)")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else time.time_ns() % 1_000_000
    rng = random.Random(seed)
    kills = cases = 0
    while kills < arguments.rounds:
        root = Path(tempfile.mkdtemp(prefix="headrace-soak-"))
        case = Case(root, rows=rng.randrange(500, 8000), epoch_bytes=rng.choice([3_000, 10_000, 60_000])).prepare()
        history: list[str] = []
        try:
            for _ in range(rng.randrange(1, 9)):
                if _kill_once(case, rng, history) == 0:
                    break
            if case.run() != 0:
                raise AssertionError("the last run did not end by itself")
            case.check()
        except BaseException:
            print(f"seed {seed}, case {cases}: {history}; kept in {root}", file=sys.stderr)
            raise
        shutil.rmtree(root)
        kills += len(history)
        cases += 1
        print(f"{kills} of {arguments.rounds} kills, {cases} directories, all right (seed {seed})", flush=True)
    return 0


def _kill_once(case: Case, rng: random.Random, history: list[str]) -> int:
    if rng.random() < 0.5:
        seconds, how = rng.uniform(3, 30), rng.choice([signal.SIGKILL, signal.SIGTERM])
        history.append(f"{how.name} after {seconds:.2f} s")
        ended = case.run_and_kill_after(seconds, how)
        return 1 if how is signal.SIGTERM and "waited" in case.said else ended
    history.append(f"{rng.choice(POINTS)}@{rng.randrange(1, 8)}")
    return case.run(history[-1])


if __name__ == "__main__":
    sys.exit(main())
