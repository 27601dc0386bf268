"""The entry point of the `headrace` script.

`headrace check` answers from here: typer takes a third of the time that planning a script takes to import.
"""

from __future__ import annotations

import sys

from headrace.base.plan_only import plan_only


def main() -> None:
    """Run the command line."""
    quick()
    from headrace.app.cli import app

    app()


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
