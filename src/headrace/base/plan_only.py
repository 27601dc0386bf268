"""Plan-only processes: `headrace check` and `headrace explain` decode nothing, so they need no compiler.

Importing Numba takes a third of the time of such a command. The process calls `plan_only` before anything else. Kernels
are then declared but cannot be called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from headrace.errors import InternalError

_only = False


def plan_only() -> None:
    """Declare that this process decodes nothing. Has no effect once the formats are loaded."""
    global _only
    _only = "headrace.formats" not in sys.modules


def only_plans() -> bool:
    """True if kernels are declared but not compiled in this process."""
    return _only


def declared(function: Callable[..., Any]) -> Any:
    """A stand-in for a kernel in a plan-only process."""

    def refuse(*args: object) -> None:
        raise InternalError(f"the kernel {function.__qualname__} was called in a process that only plans")

    return refuse
