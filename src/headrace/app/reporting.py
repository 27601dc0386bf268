"""Prints the error that ended a command, and gives its exit code."""

from __future__ import annotations

import os
import sys
import traceback

from headrace.errors import HeadraceError, HubUnreachable, InternalError


def silence_output() -> None:
    """Send what is still printed to nowhere: nobody reads standard output any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report(problem: BaseException, verbose: bool) -> int:
    """Print `problem` on standard error. Returns 2 for an error of headrace, 3 if no hub answers, 130 for Ctrl-C, and
    1 for any other exception, which is printed in short. If nobody reads the output any more, nothing is printed."""
    if isinstance(problem, KeyboardInterrupt):
        print("ended by Ctrl-C", file=sys.stderr)
        return 130
    if isinstance(problem, BrokenPipeError):  # `headrace logs | head`: the reader has seen enough
        silence_output()
        return 1
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
