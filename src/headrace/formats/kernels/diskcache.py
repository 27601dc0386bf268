"""Makes Numba store the machine code of kernels in the directory that `headrace.formats.kernels.jit` picks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from headrace.formats.kernels.jit import kernel_directory, stamp


class _Locator(_CacheLocator):
    """Tells Numba where the cache is, and that it is stale after any change in the kernels' sources."""

    def __init__(self, name: str, own: str) -> None:
        self._name, self._own = name, own

    def get_cache_path(self) -> str:
        return str(kernel_directory())

    def get_source_stamp(self) -> str:
        return f"{stamp()} {self._own}"

    def get_disambiguator(self) -> str:
        return hashlib.blake2b(self._name.encode(), digest_size=5).hexdigest()

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        own = hashlib.blake2b(Path(py_file).read_bytes(), digest_size=8).hexdigest()
        return cls(f"{py_func.__module__}.{py_func.__qualname__}", own)


class _Impl(CompileResultCacheImpl):
    _locator_classes: Any = [_Locator]  # noqa: RUF012


class KernelCache(FunctionCache):
    _impl_class = _Impl
