"""Processes that only plan: `headrace check` and `headrace explain` decode nothing, so they need no compiler.

Importing Numba is a third of the time that such a command takes. `plan_only` is called first thing in the process; the
kernels are then declared but cannot be called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from headrace.errors import InternalError

_only = False


def plan_only() -> None:
    """Declare from now on that this process decodes nothing. Without effect once the formats are loaded."""
    global _only
    _only = "headrace.formats" not in sys.modules


def only_plans() -> bool:
    """Whether kernels are declared but not compiled here."""
    return _only


def declared(function: Callable[..., Any]) -> Any:
    """Stands for a kernel in a process that only plans."""

    def refuse(*args: object) -> None:
        raise InternalError(f"the kernel {function.__qualname__} was called in a process that only plans")

    return refuse
