"""Compiles kernels and caches the machine code on disk.

The cache directory is named after the sources of *all* kernels: Numba itself would only look at the file of the
outermost function and miss a change in a helper. It is in the user's cache directory, so that read-only installs and
Spark workers find it, too. Without one, a private directory under the temporary directory is used.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, cast

from headrace.base.cache import cache_directory
from headrace.base.plan_only import declared, only_plans

F = TypeVar("F", bound=Callable[..., Any])

# With this set, wide loads read byte by byte with bounds checks. Tests run the kernels once this way.
CHECKED = os.environ.get("HEADRACE_CHECKED_KERNELS") == "1"


@cache
def stamp() -> str:
    """A digest of everything that the machine code depends on, except the processor, which Numba adds."""
    digest = hashlib.blake2b(f"{version('numba')} {CHECKED}".encode(), digest_size=8)
    for path in sorted(Path(__file__).parents[2].glob("*/kernels/*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def kernel_directory() -> Path:
    """A writable directory for this version of the kernels."""
    found = cache_directory() / f"kernels-{stamp()}"
    found.mkdir(parents=True, exist_ok=True)
    return found


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    if only_plans():
        return declared(function)
    import numba

    return numba.njit(nogil=True, boundscheck=CHECKED, error_model="numpy", **options)(function)


def kernel(function: F) -> F:
    """Compile `function` on its first call, to run without the GIL, and cache the code on disk."""
    compiled = _compiled(function)
    if not only_plans():
        from headrace.formats.kernels.diskcache import KernelCache

        make_cache: Any = KernelCache
        compiled._cache = make_cache(function)
    return cast(F, compiled)


def helper(function: F) -> F:
    """Compile `function` as a part of the kernels that call it."""
    return cast(F, _compiled(function))


def inlined(function: F) -> F:
    """Like `helper`, and inlined into its callers: for short functions that run once per byte or field."""
    return cast(F, _compiled(function, forceinline=True))
