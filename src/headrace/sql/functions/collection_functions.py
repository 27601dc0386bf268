"""Functions on arrays, maps and structs, from the modules of each."""

from __future__ import annotations

from headrace.sql.functions import (
    array_functions,
    lambda_functions,
    map_functions,
    nested_operators,
    sequence_functions,
)
from headrace.sql.functions.overload import Overload

OVERLOADS: tuple[Overload, ...] = (
    *array_functions.OVERLOADS,
    *sequence_functions.OVERLOADS,
    *map_functions.OVERLOADS,
    *lambda_functions.OVERLOADS,
    *nested_operators.OVERLOADS,
)
