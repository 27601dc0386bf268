"""Decides what generated rows look like: turns a schema and a format into a program for `headrace.sources.row_kernel`.

The values of a column depend on its type and, for known names (`temp`, `hum`, `device`, ...), on its name.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import numpy as np

from headrace.model.schema import Array, DataType, Decimal, Map, Scalar, Struct
from headrace.sources import row_kernel

if TYPE_CHECKING:
    from headrace.sources.generator import Recipe

# Doubles: a part of the name -> (low, high).
_RANGES = {
    "temp": (10.0, 35.0), "hum": (20.0, 95.0), "press": (980.0, 1040.0), "volt": (2.8, 4.2), "batt": (0.0, 100.0),
    "lat": (-60.0, 70.0), "lon": (-180.0, 180.0), "speed": (0.0, 130.0), "price": (1.0, 500.0), "co2": (380.0, 1600.0),
    "lux": (0.0, 20000.0), "wind": (0.0, 40.0), "ratio": (0.0, 1.0),
}  # fmt: skip
_WORDS = ("ok", "idle", "warm", "busy", "alert", "off", "boot", "sleep")
_KEYS = ("id", "device", "name", "key", "user", "host", "sensor", "station", "city", "symbol", "account")
_SERIAL = ("id", "seq", "n", "k", "row")
_WIDEST = 48  # the most bytes of a value, constant text not included


class RowMaker:
    """Makes the text of any range of rows of one recipe."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.json = recipe.format != "csv"
        self._pieces: list[tuple[int, int, int, int, int]] = []
        self._texts = bytearray()
        self._bounds: list[int] = []
        for i, field in enumerate(recipe.schema):
            lead = ("{" if i == 0 else ",") + json.dumps(field.name) + ":" if self.json else recipe.delimiter * (i > 0)
            self._constant(lead)
            mark = len(self._pieces)
            self._value(field.type, field.name.lower(), i + 1, i == recipe.event_time)
            if recipe.nulls and i != recipe.event_time:
                begin, end = self._text("null" if self.json else "")
                self._pieces.insert(mark, (row_kernel.MAYBE, begin, end, len(self._pieces) - mark, 500 + i))
        self._constant("}\n" if self.json and len(recipe.schema) else "\n")
        self._program = np.array(self._merged(), np.int64).reshape(-1, 5)
        self._room = sum(b - a if code == row_kernel.CONSTANT else _WIDEST for code, a, b, _, _ in self._pieces)
        self._table = np.frombuffer(bytes(self._texts) + b"\0", np.uint8)
        self._places = np.array([*self._bounds, 0], np.int32)
        self.row_bytes = max(1, len(self.text(0, 64)) // 64)

    def rows_per(self, size: int) -> int:
        """About how many rows have `size` bytes."""
        return max(1, size // self.row_bytes)

    def text(self, begin: int, end: int) -> memoryview:
        """Records [begin, end), each with its newline."""
        recipe = self.recipe
        out = np.empty((end - begin) * self._room, np.uint8)
        _, size = row_kernel.render(
            self._program, self._table, self._places, np.uint64(recipe.seed), begin, end, recipe.start_us,
            float(recipe.step_us), float(recipe.disorder), recipe.spread_us, float(recipe.nulls), self._room, out,
        )  # fmt: skip
        return memoryview(out[:size].tobytes())

    def _merged(self) -> list[tuple[int, int, int, int, int]]:
        """The pieces, with adjacent constants joined (their texts are adjacent, too)."""
        if self.recipe.nulls:
            return self._pieces  # MAYBE counts pieces
        out: list[tuple[int, int, int, int, int]] = []
        for piece in self._pieces:
            constant = piece[0] == row_kernel.CONSTANT
            if constant and out and out[-1][0] == row_kernel.CONSTANT and out[-1][2] == piece[1]:
                out[-1] = (row_kernel.CONSTANT, out[-1][1], piece[2], 0, 0)
            elif not constant or piece[1] < piece[2]:
                out.append(piece)
        return out

    def _text(self, text: str) -> tuple[int, int]:
        begin = len(self._texts)
        self._texts += text.encode()
        return begin, len(self._texts)

    def _constant(self, text: str) -> None:
        self._add(row_kernel.CONSTANT, *self._text(text))

    def _add(self, code: int, a: int = 0, b: int = 0, salt: int = 0) -> None:
        self._pieces.append((code, a, b, 0, salt))

    def _value(self, kind: DataType, name: str, salt: int, timed: bool = False) -> None:
        if isinstance(kind, Struct):
            for i, field in enumerate(kind.fields):
                self._constant(("{" if i == 0 else ",") + json.dumps(field.name) + ":")
                self._value(field.type, field.name.lower(), salt * 31 + i + 1)
            self._constant("}" if kind.fields else "{}")
        elif isinstance(kind, Array):
            for i, lead in enumerate("[,"):
                self._constant(lead)
                self._value(kind.element, name, salt * 31 + i + 1)
            self._constant("]")
        elif isinstance(kind, Map):
            self._constant('{"1":')
            self._value(kind.value, name, salt * 31 + 1)
            self._constant("}")
        elif isinstance(kind, Decimal):
            self._add(row_kernel.DECIMAL, min(kind.precision - kind.scale, 4), min(kind.scale, 6), salt)
        else:
            assert isinstance(kind, Scalar)
            self._scalar(kind.name, name, salt, timed)

    def _scalar(self, kind: str, name: str, salt: int, timed: bool) -> None:
        quote = '"' if self.json and kind in ("STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ") else ""
        self._constant(quote)
        if kind == "STRING" and name.endswith(_KEYS):
            self._constant(f"{name}-")
            self._add(row_kernel.NUMBERED, self.recipe.cardinality, len(str(self.recipe.cardinality - 1)), salt)
        elif kind == "STRING":
            self._words(_WORDS, salt)
        elif kind == "BINARY":
            self._words(tuple(base64.b64encode(i.to_bytes(4, "big")).decode() for i in range(256)), salt)
        elif kind == "BOOLEAN":
            self._add(row_kernel.TRUTH, self._text("truefalse")[0], 0, salt)
        elif kind in ("FLOAT", "DOUBLE"):
            low, high = next((r for part, r in _RANGES.items() if part in name), (0.0, 100.0))
            self._add(row_kernel.HUNDREDTHS, round(low * 100), round(high * 100), salt)
        elif kind == "DATE":
            self._add(row_kernel.DAY)
        elif kind in ("TIMESTAMP", "TIMESTAMP_NTZ"):
            self._add(row_kernel.MOMENT, 0 if timed else 1, int(kind == "TIMESTAMP"), salt)
        elif kind == "BIGINT" and name in _SERIAL:
            self._add(row_kernel.SERIAL)
        else:
            self._add(row_kernel.WHOLE, {"TINYINT": 100, "SMALLINT": 10_000}.get(kind, 1000), 0, salt)
        self._constant(quote)

    def _words(self, words: tuple[str, ...], salt: int) -> None:
        first = len(self._bounds)
        self._bounds += [self._text(word)[0] for word in words]
        self._bounds.append(len(self._texts))
        self._add(row_kernel.WORD, first, len(words), salt)
