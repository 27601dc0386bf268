"""Plan-only processes: `headrace check` and `headrace explain` decode nothing, so they need no compiler.

Importing Numba takes a third of the time of such a command. The process calls `plan_only` before anything else. Kernels
are then declared but cannot be called. DuckDB and Arrow's functions, which only some scripts need, are loaded at their
first use.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from headrace.errors import InternalError

_only = False


def plan_only() -> None:
    """Declare that this process decodes nothing. Has no effect once the formats are loaded."""
    global _only
    _only = "headrace.formats" not in sys.modules
    if _only:
        gc.set_threshold(50_000)  # a short process: with Python's default, importing spends a tenth of its time in gc
        for name in LAZY:
            _load_late(name)


# `headrace check` imports them only if a statement needs them. tests/app pins what it imports.
LAZY = ("duckdb", "pyarrow.compute", "pyarrow.parquet")


class _LateModule(ModuleType):
    """Stands for a module until one of its attributes is used. (`importlib.util.LazyLoader` loads the module at the
    second import statement already.)"""

    def __getattr__(self, name: str) -> Any:
        if name in ("__file__", "__wrapped__"):  # inspection tools read these of every module
            raise AttributeError(name)
        full = self.__name__
        if sys.modules.get(full) is self:
            del sys.modules[full]
        real = importlib.import_module(full)
        self.__dict__.update(real.__dict__)
        return getattr(real, name)


def _load_late(name: str) -> None:
    """Make `import name` give a module that loads when it is first used. Nothing happens if it is loaded already."""
    spec = importlib.util.find_spec(name) if name not in sys.modules else None
    if spec is None:
        return
    module = _LateModule(name)
    module.__spec__ = spec
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def only_plans() -> bool:
    """True if kernels are declared but not compiled in this process."""
    return _only


def declared(function: Callable[..., Any]) -> Any:
    """A stand-in for a kernel in a plan-only process."""

    def refuse(*args: object) -> None:
        raise InternalError(f"the kernel {function.__qualname__} was called in a process that only plans")

    return refuse
