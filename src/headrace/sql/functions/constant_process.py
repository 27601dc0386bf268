"""Evaluates constants with regular expressions of Python's `re` in a process of their own.

A match can take hours, nothing interrupts it, and no other thread of its process runs meanwhile. A process can be
killed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import subprocess
import sys
from typing import Any

import duckdb

from headrace.exec.kernels import install

MEMORY_LIMIT = "256MB"
# Constants that call these kernels are evaluated in the process (`headrace.exec.kernels.regex_matches`).
_KERNELS = "hr_regex_"
# Seconds of processor time for one constant: longer than planning may take. Ends a process whose owner was killed.
_CPU_SECONDS = 120
_MAIN = "from headrace.sql.functions.constant_process import main; main()"


def needs_process(sql: str) -> bool:
    """True if nothing could interrupt the evaluation of an expression in this process."""
    return _KERNELS in sql


def connect(time_zone: str) -> duckdb.DuckDBPyConnection:
    """A connection that evaluates constants in a time zone, as tasks do."""
    made = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": MEMORY_LIMIT})
    made.execute("SET TimeZone=" + "'" + time_zone.replace("'", "''") + "'")
    # DuckDB's optimizer folds the branches of a CASE that are never taken, and raises their errors.
    made.execute("PRAGMA disable_optimizer")
    install(made, time_zone)
    return made


class ConstantProcess:
    """Starts with the first constant. One thread calls `value`, any may call `kill`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    def value(self, sql: str, time_zone: str) -> Any:
        """The value of a constant. Raises duckdb.Error, and duckdb.InterruptException when the process is killed."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _MAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            if self._killed:
                self.kill()
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            pickle.dump((sql, time_zone), self._process.stdin)
            self._process.stdin.flush()
            kind, value = pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as problem:
            raise duckdb.InterruptException("the evaluation of a constant was ended") from problem
        if kind:
            raise getattr(duckdb, kind, duckdb.Error)(value)
        return value

    def kill(self) -> None:
        """End the process, also in the middle of a constant."""
        self._killed = True
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Release the process after `kill`, in the thread that calls `value`."""
        if self._process is not None:
            with contextlib.suppress(OSError):  # half a question was still to be written
                self._process.__exit__(None, None, None)


def main() -> None:
    """The process: questions come on the standard input."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    connections: dict[str, duckdb.DuckDBPyConnection] = {}
    while True:
        try:
            sql, time_zone = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        used = resource.getrusage(resource.RUSAGE_SELF)
        most = int(used.ru_utime + used.ru_stime) + _CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        if time_zone not in connections:
            connections[time_zone] = connect(time_zone)
        try:
            row = connections[time_zone].execute(f"SELECT {sql}").fetchone()
            answer = ("", row and row[0])
        except duckdb.Error as problem:
            answer = (type(problem).__name__, str(problem))
        pickle.dump(answer, answers)
        answers.flush()
