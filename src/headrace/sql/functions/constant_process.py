"""Evaluates constants with regular expressions of Python's `re` in a process of their own.

A match can take hours, nothing interrupts it, and no other thread of its process runs meanwhile. A process can be
killed. Its program is `headrace.exec.constants`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from typing import IO, Any

import duckdb

from headrace.errors import ConstantNotEvaluated

# Constants that call these kernels are evaluated in the process (`headrace.exec.kernels.regex_matches`).
_KERNELS = "hr_regex_"
# -P: modules of the current directory that are named like the library's are not imported.
_COMMAND = ("-P", "-m", "headrace.exec.constants")
_ATTEMPTS = 2


def needs_process(sql: str) -> bool:
    """True if nothing could interrupt the evaluation of an expression in this process."""
    return _KERNELS in sql


class ConstantProcess:
    """The process. It starts with the first constant. If it has ended, it starts again with the next constant. One
    thread calls `value` and `end`, any thread may call `kill`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: IO[bytes] | None = None
        self._killed = False

    @property
    def running(self) -> bool:
        return self._process is not None

    def value(self, sql: str, time_zone: str) -> Any:
        """The value of a constant. Raises what its evaluation raises, duckdb.InterruptException after `kill`, and
        ConstantNotEvaluated if the process ends again and again."""
        for attempt in range(_ATTEMPTS):
            try:
                value, failure = self._answer(sql, time_zone)
            except (OSError, EOFError, pickle.UnpicklingError) as problem:
                code = self.end()
                if self._killed:
                    raise duckdb.InterruptException("the evaluation of a constant was ended") from problem
                if attempt + 1 == _ATTEMPTS:
                    raise _lost(code, problem) from problem
                continue
            if failure is not None:
                raise failure
            return value
        raise AssertionError("the last attempt returns or raises")

    def _answer(self, sql: str, time_zone: str) -> tuple[Any, Exception | None]:
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None and self._answers is not None
        pickle.dump((sql, time_zone), self._process.stdin)
        self._process.stdin.flush()
        value, failure = pickle.load(self._answers)
        return value, failure

    def _start(self) -> None:
        """Answers have a pipe of their own, because a `sitecustomize` or a library may print."""
        answers, theirs = os.pipe()
        self._answers = os.fdopen(answers, "rb")
        try:
            self._process = subprocess.Popen(
                [sys.executable, *_COMMAND, str(theirs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs],
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(os.path.isabs, sys.path))},
            )
        finally:
            os.close(theirs)
        if self._killed:
            self.kill()

    def kill(self) -> None:
        """End the process for good, also in the middle of a constant."""
        self._killed = True
        process = self._process
        if process is not None:
            process.kill()

    def end(self) -> int | None:
        """End the process until the next constant. Its exit code, if there was one."""
        process, self._process = self._process, None
        answers, self._answers = self._answers, None
        if answers is not None:
            answers.close()
        if process is None:
            return None
        process.kill()
        with contextlib.suppress(OSError):  # half a question was still to be written
            process.__exit__(None, None, None)
        return process.returncode


def _lost(code: int | None, problem: Exception) -> ConstantNotEvaluated:
    how = f"cannot be started: {problem}" if code is None else f"ended {_ATTEMPTS} times, with exit code {code}"
    return ConstantNotEvaluated(
        f"the process that evaluates constants with regular expressions {how}",
        advice="Exit code -9 usually means that the machine has no memory left. Run the statement again; if it fails "
        "again, use a simpler pattern, or apply it to a column instead of a constant.",
        exit_code=code,
    )
