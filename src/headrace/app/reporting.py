"""Prints the error that ended a command, and gives its exit code."""

from __future__ import annotations

import sys
import traceback

from headrace.errors import HeadraceError, HubUnreachable, InternalError


def report(problem: BaseException, verbose: bool) -> int:
    """Print `problem` on standard error. Returns 2 for an error of headrace, 3 if no hub answers, 130 for Ctrl-C, and
    1 for any other exception, which is printed in short."""
    if isinstance(problem, KeyboardInterrupt):
        print("ended by Ctrl-C", file=sys.stderr)
        return 130
    if isinstance(problem, HubUnreachable):
        print(problem.render(), file=sys.stderr)
        return 3
    if verbose:
        traceback.print_exception(problem)
    if isinstance(problem, HeadraceError):
        print(problem.render(), file=sys.stderr)
        return 2
    ours = InternalError(
        f"{type(problem).__name__}: {str(problem).strip().split(chr(10))[0]}",
        advice="This is a bug. Run the command again with --verbose and report the output.",
    )
    print(ours.render(), file=sys.stderr)
    return 1
