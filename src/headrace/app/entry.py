"""The entry point of the `headrace` script.

`headrace check` answers from here: typer takes a third of the time that planning a script takes to import.
"""

from __future__ import annotations

import atexit
import os
import sys

from headrace.base.plan_only import plan_only


def main() -> None:
    """Run the command line."""
    ending = _Ending()
    atexit.register(ending.leave)  # the first, so it is the last to run
    try:
        quick()
        from headrace.app.cli import app

        app()
    except SystemExit as ended:
        ending.code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        try:
            sys.stdout.flush()
        except BrokenPipeError as problem:  # Python would print it when it ends
            from headrace.app.reporting import report

            ending.code = report(problem, verbose=False)
            sys.exit(ending.code)
        raise


class _Ending:
    """How this process ends. `code` is its exit code; 1 is Python's for any exception."""

    code = 1

    def leave(self) -> None:
        """Exit without finalizing Python if a constant is still evaluated: DuckDB cannot be interrupted in it, and
        would abort the process if it returned meanwhile."""
        evaluate = sys.modules.get("headrace.sql.functions.evaluate")
        if evaluate is not None and evaluate.still_running():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.code)


def quick() -> None:
    """Run `headrace check` with the usual arguments, and exit. Does nothing for any other command line."""
    if sys.argv[1:2] in (["check"], ["explain"], ["fmt"]):
        plan_only()
    if sys.argv[1:2] != ["check"]:
        return
    from headrace.app.checking import check_command, quick_arguments

    given = quick_arguments(sys.argv[2:])
    if given is None:
        return
    try:
        code = check_command(given)
    except (Exception, KeyboardInterrupt) as problem:
        from headrace.app.reporting import report

        code = report(problem, verbose=False)
    sys.exit(code)
