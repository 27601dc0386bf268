"""Evaluates constants: the connection, and the program of the process that `headrace.sql` starts for some of them.

The process imports this module and the kernels only, so that it starts quickly and is small.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys

import duckdb

from headrace.exec.kernels import install

MEMORY_LIMIT = "256MB"
# Seconds of processor time for one constant: longer than planning may take. Ends a process whose owner was killed.
_CPU_SECONDS = 120


def connect(time_zone: str) -> duckdb.DuckDBPyConnection:
    """A connection that evaluates constants in a time zone, as tasks do."""
    made = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": MEMORY_LIMIT})
    made.execute("SET TimeZone=" + "'" + time_zone.replace("'", "''") + "'")
    # DuckDB's optimizer folds the branches of a CASE that are never taken, and raises their errors.
    made.execute("PRAGMA disable_optimizer")
    install(made, time_zone)
    return made


def main() -> None:
    """The process. Questions (SQL, time zone) come on the standard input. An answer is the value or the exception. It
    goes to the pipe that the first argument names: Python itself may print before this runs."""
    answers = os.fdopen(int(sys.argv[1]), "wb")
    connections: dict[str, duckdb.DuckDBPyConnection] = {}
    while True:
        try:
            sql, time_zone = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            _limit_time()
            if time_zone not in connections:
                connections[time_zone] = connect(time_zone)
            row = connections[time_zone].execute(f"SELECT {sql}").fetchone()
            value, failure = row and row[0], None
        except Exception as problem:  # the owner raises it
            value, failure = None, problem
        pickle.dump((value, failure), answers)
        answers.flush()


def _limit_time() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + _CPU_SECONDS
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    main()
