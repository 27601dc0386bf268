"""Date and time patterns, as in Spark: `dd/MM/yyyy HH:mm:ss.SSS XXX`, compiled to a program for the kernel.

Letters: yyyy MM dd HH mm ss, S (1 to 9 of them), and X, XXX or Z for an offset such as Z, +01, +0100 or +01:00. Text in
'single quotes' and all other characters stand for themselves. Fields have fixed widths.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from headrace.formats.kernels import times
from headrace.formats.kernels.numbers import FINE

_FIELDS = {
    "yyyy": times.YEAR,
    "MM": times.MONTH,
    "dd": times.DAYS,
    "HH": times.HOUR,
    "mm": times.MINUTE,
    "ss": times.SECOND,
}
_TOKEN = re.compile(r"'((?:[^']|'')*)'|(y+|M+|d+|H+|m+|s+|S+|X+|Z+)|([A-Za-z])|(.)", re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A compiled pattern. `zoned` is true if it reads a UTC offset."""

    text: str
    program: npt.NDArray[np.int32]
    zoned: bool

    def read(self, text: bytes) -> int | None:
        """The microseconds since 1970 that `text` spells; None if it does not match."""
        data = np.frombuffer(text + b"\0", np.uint8)
        starts, ends = np.zeros(1, np.int32), np.full(1, len(text), np.int32)
        values, status = np.zeros(1, np.int64), np.zeros(1, np.uint8)
        times.parse_pattern(data, starts, ends, False, self.program, times.BAD_TIMESTAMP, values, status)
        return int(values[0]) if status[0] == FINE else None


@lru_cache(maxsize=64)
def compile_pattern(text: str) -> Pattern:
    """Compile a pattern. Raises ValueError that says what is allowed."""
    steps: list[tuple[int, int]] = []
    for quoted, letters, unknown, other in _TOKEN.findall(text):
        if unknown or (letters and letters not in _FIELDS and letters[0] not in "SXZ"):
            raise ValueError(f"a pattern of yyyy MM dd HH mm ss S X and literal text, not {unknown or letters!r}")
        if letters and letters[0] == "S" and len(letters) > 9:
            raise ValueError("a pattern with at most nine S")
        if letters in _FIELDS:
            steps.append((_FIELDS[letters], len(letters)))
        elif letters:
            steps.append((times.FRACTION, len(letters)) if letters[0] == "S" else (times.ZONE, 0))
        else:
            literal = quoted.replace("''", "'") if quoted else other or "'"
            steps += [(times.LITERAL, byte) for byte in literal.encode()]
    codes = {code for code, _ in steps}
    if times.YEAR not in codes:
        raise ValueError("a pattern that has a year, yyyy")
    return Pattern(text, np.array(steps, np.int32).reshape(-1, 2), times.ZONE in codes)
