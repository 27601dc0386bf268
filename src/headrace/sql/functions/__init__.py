"""The scalar functions of the shared host. `find` resolves a call. `verified` is the list of functions that may run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources

from headrace.exec.kernels import KERNELS
from headrace.model.schema import DataType
from headrace.sql.functions import (
    binary_functions,
    bit_functions,
    code_functions,
    collection_functions,
    condition_functions,
    document_functions,
    format_functions,
    hash_functions,
    interval_functions,
    json_functions,
    math_functions,
    number_formats,
    number_functions,
    operator_functions,
    pattern_functions,
    regex_functions,
    string_functions,
    time_functions,
    try_functions,
    vector_functions,
)
from headrace.sql.functions.overload import Overload

# other spellings of the same function
ALIASES = {
    "ucase": "upper", "lcase": "lower", "char_length": "length", "character_length": "length", "len": "length",
    "substr": "substring", "ceiling": "ceil", "sign": "signum", "mod": "%", "dateadd": "date_add",
    "date_diff": "datediff", "dayofmonth": "day", "regexp": "rlike", "regexp_like": "rlike", "pow": "power",
    "cardinality": "size", "now": "current_timestamp", "curdate": "current_date", "sha": "sha1", "char": "chr",
    "position": "locate", "printf": "format_string", "reduce": "aggregate",
}  # fmt: skip

_MODULES = (
    operator_functions,
    binary_functions,
    condition_functions,
    format_functions,
    hash_functions,
    json_functions,
    regex_functions,
    string_functions,
    number_functions,
    number_formats,
    time_functions,
    pattern_functions,
    collection_functions,
    math_functions,
    bit_functions,
    try_functions,
    document_functions,
    code_functions,
    vector_functions,
    interval_functions,
)


def _registry() -> dict[str, tuple[Overload, ...]]:
    found: dict[str, list[Overload]] = {}
    for module in _MODULES:
        for overload in module.OVERLOADS:
            found.setdefault(overload.name, []).append(overload)
    for overload in try_functions.of_decimals(found):
        found.setdefault(overload.name, []).append(overload)
    return {name: tuple(overloads) for name, overloads in found.items()}


FUNCTIONS: dict[str, tuple[Overload, ...]] = _registry()


def find(name: str, kinds: Sequence[DataType]) -> Overload | None:
    """The overload of `name` for exactly these argument types."""
    for overload in FUNCTIONS.get(name, ()):
        if overload.accepts(kinds):
            return overload
    return None


def names_slow_kernel(sql: str) -> bool:
    """True if the DuckDB SQL calls a kernel that runs Python code for every row."""
    return any(kernel in KERNELS and KERNELS[kernel].slow for kernel in re.findall(r"\bhr_\w+", sql))


@cache
def verified() -> frozenset[str]:
    """The keys of `verified.txt`: the functions, casts (`cast(A -> B)`) and aggregates that agree with Spark."""
    return _lines("verified.txt")


@cache
def spark_functions() -> frozenset[str]:
    """The names of all functions that Spark has, including those that the shared host does not have."""
    return _lines("spark_functions.txt")


def _lines(file: str) -> frozenset[str]:
    text = resources.files("headrace.sql.functions").joinpath(file).read_text("utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))
