"""What made-up rows look like: columns of text, vectorised, joined into records.

Randomness is a hash of (seed, column, row), so a row never depends on the rows around it. A column's shape comes from
its type and, where a name is telling (`temp`, `hum`, `device`, ...), from its name.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.schema import Array, DataType, Decimal, Map, Scalar, Struct

if TYPE_CHECKING:
    from headrace.sources.generator import Recipe

U64 = npt.NDArray[np.uint64]
Column = Any  # a pyarrow string array
Text = Any  # a pyarrow string array, or a str that is the same for every row

# Doubles: the part of a name -> (low, high). The value drifts slowly around a level of its key, as sensors do.
_RANGES = {
    "temp": (10.0, 35.0), "hum": (20.0, 95.0), "press": (980.0, 1040.0), "volt": (2.8, 4.2), "batt": (0.0, 100.0),
    "lat": (-60.0, 70.0), "lon": (-180.0, 180.0), "speed": (0.0, 130.0), "price": (1.0, 500.0), "co2": (380.0, 1600.0),
    "lux": (0.0, 20000.0), "wind": (0.0, 40.0), "ratio": (0.0, 1.0),
}  # fmt: skip
_WORDS = ("ok", "idle", "warm", "busy", "alert", "off", "boot", "sleep")
_KEYS = ("id", "device", "name", "key", "user", "host", "sensor", "station", "city", "symbol", "account")


def mix(seed: int, salt: int, rows: U64) -> U64:
    """64 random bits per row: the finaliser of splitmix64 over (seed, salt, row)."""
    with np.errstate(over="ignore"):
        base = (seed * 0xD1342543DE82EF95 + salt * 0x2545F4914F6CDD1D) % 2**64
        z = rows * np.uint64(0x9E3779B97F4A7C15) + np.uint64(base)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def share(bits: U64) -> npt.NDArray[np.float64]:
    """Random bits as numbers in [0, 1)."""
    return np.asarray((bits >> np.uint64(11)) * (1.0 / (1 << 53)), np.float64)


def fixed_text(columns: npt.NDArray[np.uint8]) -> Column:
    """Rows of equally many characters as a string array, without a loop."""
    rows, width = columns.shape
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets.tobytes()), pa.py_buffer(columns.tobytes()))


def digits(out: npt.NDArray[np.uint8], at: int, width: int, values: npt.NDArray[np.int64]) -> None:
    """Write `values` into `width` columns of `out`, with leading zeros."""
    rest = values
    for place in range(at + width - 1, at - 1, -1):
        rest, digit = np.divmod(rest, 10)
        out[:, place] = digit + 48


def date_text(days: npt.NDArray[np.int64], out: npt.NDArray[np.uint8]) -> None:
    """Write days since 1970 as yyyy-mm-dd into the first ten columns of `out`."""
    stamp = days.astype("datetime64[D]")
    year = stamp.astype("datetime64[Y]").astype(np.int64) + 1970
    month = stamp.astype("datetime64[M]").astype(np.int64) % 12 + 1
    day = (stamp - stamp.astype("datetime64[M]").astype("datetime64[D]")).astype(np.int64) + 1
    digits(out, 0, 4, year)
    digits(out, 5, 2, month)
    digits(out, 8, 2, day)
    out[:, 4] = out[:, 7] = ord("-")


def stamp_text(micros: npt.NDArray[np.int64], zone: bool) -> Column:
    """Microseconds since 1970 as ISO 8601 text."""
    out = np.empty((len(micros), 27 if zone else 26), np.uint8)
    days, within = np.divmod(micros, 86_400_000_000)
    seconds, fraction = np.divmod(within, 1_000_000)
    date_text(days, out)
    digits(out, 11, 2, seconds // 3600)
    digits(out, 14, 2, seconds // 60 % 60)
    digits(out, 17, 2, seconds % 60)
    digits(out, 20, 6, fraction)
    for place, char in ((10, "T"), (13, ":"), (16, ":"), (19, ".")):
        out[:, place] = ord(char)
    if zone:
        out[:, 26] = ord("Z")
    return fixed_text(out)


class RowMaker:
    """Makes the text of any range of rows of one recipe."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.json = recipe.format != "csv"
        self.row_bytes = max(1, len(self.text(0, 64)) // 64)

    def rows_per(self, size: int) -> int:
        """About how many rows make `size` bytes."""
        return max(1, size // self.row_bytes)

    def text(self, begin: int, end: int) -> memoryview:
        """Records [begin, end), each with its newline."""
        rows = np.arange(begin, end, dtype=np.uint64)
        when = self._event_time(rows)
        pieces: list[Text] = []
        for i, field in enumerate(self.recipe.schema):
            if self.json:
                pieces.append(("{" if i == 0 else ",") + f'"{field.name}":')
            elif i:
                pieces.append(self.recipe.delimiter)
            timed = i == self.recipe.event_time
            value = self._value(field.type, field.name, rows, when, i + 1, timed)
            pieces += [value] if timed else [self._holes(value, rows, i + 1)]
        pieces.append("}\n" if self.json else "\n")
        joined = pc.binary_join_element_wise(*_folded(pieces), "")
        buffers = joined.buffers()
        offsets = np.frombuffer(buffers[1], np.int32)
        return memoryview(buffers[2])[: offsets[len(rows)]]

    def _event_time(self, rows: U64) -> npt.NDArray[np.int64]:
        recipe = self.recipe
        when = recipe.start_us + (rows * recipe.step_us).astype(np.int64)
        if recipe.disorder:
            late = share(mix(recipe.seed, 901, rows)) < recipe.disorder
            behind = share(mix(recipe.seed, 902, rows)) * recipe.spread_us
            when = when - np.where(late, behind, 0.0).astype(np.int64)
        return when

    def _holes(self, value: Text, rows: U64, salt: int) -> Text:
        if not self.recipe.nulls:
            return value
        keep = pa.array(share(mix(self.recipe.seed, 500 + salt, rows)) >= self.recipe.nulls)
        return pc.if_else(keep, value, pa.scalar("null" if self.json else ""))

    def _value(
        self, kind: DataType, name: str, rows: U64, when: npt.NDArray[np.int64], salt: int, timed: bool = False
    ) -> Text:
        """The text of one value per row, quoted where the format wants quotes."""
        if isinstance(kind, Struct):
            parts: list[Text] = []
            for i, field in enumerate(kind.fields):
                parts += [("{" if i == 0 else ",") + f'"{field.name}":']
                parts += [self._value(field.type, field.name, rows, when, salt * 31 + i + 1)]
            return _join([*parts, "}" if parts else "{}"])
        if isinstance(kind, Array):
            items = [self._value(kind.element, name, rows, when, salt * 31 + i) for i in (1, 2)]
            return _join(["[", items[0], ",", items[1], "]"])
        if isinstance(kind, Map):
            return _join(['{"a":', self._value(kind.value, name, rows, when, salt * 31 + 1), "}"])
        bits = mix(self.recipe.seed, salt, rows)
        if isinstance(kind, Decimal):
            return self._decimal(kind, bits)
        assert isinstance(kind, Scalar)
        return self._scalar(kind.name, name.lower(), rows, when, bits, timed)

    def _scalar(self, kind: str, name: str, rows: U64, when: npt.NDArray[np.int64], bits: U64, timed: bool) -> Text:
        if kind == "STRING":
            return self._quoted(self._string(name, bits))
        if kind == "BOOLEAN":
            return pc.if_else(pa.array(share(bits) < 0.8), "true", "false")
        if kind in ("FLOAT", "DOUBLE"):
            return pa.array(self._double(name, rows, bits)).cast(pa.string())
        if kind == "DATE":
            out = np.empty((len(rows), 10), np.uint8)
            date_text(when // 86_400_000_000, out)
            return self._quoted(fixed_text(out))
        if kind in ("TIMESTAMP", "TIMESTAMP_NTZ"):
            moment = when if timed else when - (bits % np.uint64(1_000_000)).astype(np.int64)
            return self._quoted(stamp_text(moment, kind == "TIMESTAMP"))
        if kind == "BINARY":
            known = pa.array([base64.b64encode(i.to_bytes(4, "big")).decode() for i in range(256)])
            return self._quoted(known.take((bits % np.uint64(256)).astype(np.int32)))
        high = {"TINYINT": 100, "SMALLINT": 10_000}.get(kind, 1000)
        serial = kind == "BIGINT" and name in ("id", "seq", "n", "k", "row")
        return pa.array(rows if serial else bits % np.uint64(high)).cast(pa.string())

    def _string(self, name: str, bits: U64) -> Column:
        if not name.endswith(_KEYS):
            return pa.array(_WORDS).take((bits % np.uint64(len(_WORDS))).astype(np.int32))
        numbers = (bits % np.uint64(self.recipe.cardinality)).astype(np.int64)
        width = len(str(self.recipe.cardinality - 1))
        out = np.empty((len(bits), len(name) + 1 + width), np.uint8)
        out[:, : len(name) + 1] = np.frombuffer(f"{name}-".encode(), np.uint8)[: len(name) + 1]
        digits(out, len(name) + 1, width, numbers)
        return fixed_text(out)

    def _double(self, name: str, rows: U64, bits: U64) -> npt.NDArray[np.float64]:
        low, high = next((r for part, r in _RANGES.items() if part in name), (0.0, 100.0))
        # A slow wave plus noise: neighbours in time look alike, yet every row is its own function of (seed, k).
        wave = 0.5 + 0.3 * np.sin(rows * (2 * np.pi / 100_000))
        return np.asarray(np.round(low + (high - low) * (wave + 0.4 * (share(bits) - 0.5)).clip(0, 1), 2))

    def _decimal(self, kind: Decimal, bits: U64) -> Column:
        whole = min(kind.precision - kind.scale, 4)
        shown = min(kind.scale, 6)
        units = pa.array(bits % np.uint64(10**whole) if whole else bits * np.uint64(0)).cast(pa.string())
        if not shown:
            return units
        out = np.empty((len(bits), shown), np.uint8)
        digits(out, 0, shown, ((bits >> np.uint64(32)) % np.uint64(10**shown)).astype(np.int64))
        return _join([units, ".", fixed_text(out)])

    def _quoted(self, value: Column) -> Text:
        return _join(['"', value, '"']) if self.json else value


def _folded(pieces: list[Text]) -> list[Text]:
    """`pieces` with neighbouring constants joined: fewer inputs, fewer copies."""
    out: list[Text] = []
    for piece in pieces:
        if out and isinstance(piece, str) and isinstance(out[-1], str):
            out[-1] += piece
        else:
            out.append(piece)
    return out


def _join(pieces: list[Text]) -> Column:
    return pc.binary_join_element_wise(*_folded(pieces), "")
