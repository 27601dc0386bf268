"""Time zones as tables: instants to local times and back, with the rules of java.time.

A `Zone` is read from the time-zone database that Python's `zoneinfo` finds. Rules without an end are tabulated for one
cycle of the calendar (400 years); later times are moved into that cycle. All times are microseconds since 1970.
"""

from __future__ import annotations

import importlib.resources
import os
import re
import struct
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Micros = npt.NDArray[np.int64]

SECOND = 1_000_000
DAY = 86_400 * SECOND
_CYCLE = 146_097 * 86_400  # seconds in 400 years
_LAST_YEAR = 2500  # the database lists single changes up to 2087, so the last cycle follows the rules only
_WRAP = int(datetime(_LAST_YEAR, 1, 1, tzinfo=UTC).timestamp())
# Abbreviations that Spark takes as zones (java.time.ZoneId.SHORT_IDS).
_SHORT = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh", "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip
_OFFSET = re.compile(r"([+-])(?:(\d)|(\d\d)(?::(\d\d)(?::(\d\d))?|(\d\d)(\d\d)?)?)", re.ASCII)
_ID_WITH_OFFSET = re.compile(r"(?:UTC|UT|GMT)?[+-]\d\d:\d\d(?::\d\d)?", re.ASCII | re.IGNORECASE)
_REGION = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+", re.ASCII)
# Files of the database that are not zones in Java.
_NO_ZONES = frozenset({"ROC", "localtime", "posixrules", "Factory", "leapseconds", "tzdata.zi"})


class UnknownZone(ValueError):
    """A text that is not a time zone in Spark."""


@dataclass(frozen=True, slots=True, eq=False)
class Zone:
    """`offsets[i]` seconds are added to UTC from `starts[i - 1]` on. Local times of a gap or an overlap take the offset
    before the change, so `local_starts` are the later ends of gaps and overlaps."""

    name: str
    starts: Micros
    offsets: Micros
    local_starts: Micros

    @property
    def fixed(self) -> bool:
        """True if the zone never changes its offset."""
        return len(self.starts) == 0

    def offset(self, instants: Micros) -> Micros:
        """What to add to instants, in microseconds."""
        if self.fixed:
            return np.full(len(instants), self.offsets[0] * SECOND)
        seconds = _in_cycle(np.floor_divide(instants, SECOND))
        found: Micros = self.offsets[np.searchsorted(self.starts, seconds, side="right")] * SECOND
        return found

    def local(self, instants: Micros) -> Micros:
        """The wall-clock readings at instants."""
        return instants + self.offset(instants)

    def instant(self, readings: Micros) -> Micros:
        """The instants of wall-clock readings: the first of two, and after a gap as much later as the gap is long."""
        if self.fixed:
            fixed: Micros = readings - self.offsets[0] * SECOND
            return fixed
        seconds = _in_cycle(np.floor_divide(readings, SECOND))
        return readings - self.offsets[np.searchsorted(self.local_starts, seconds, side="right")] * SECOND

    def instant_near(self, readings: Micros, offset: Micros) -> Micros:
        """As `instant`, but of two instants the one with `offset`, if there is one."""
        kept = readings - offset
        return np.where(self.offset(kept) == offset, kept, self.instant(readings))


def _in_cycle(seconds: Micros) -> Micros:
    late = seconds >= _WRAP
    if not late.any():
        return seconds
    return np.where(late, _WRAP - _CYCLE + (seconds - _WRAP) % _CYCLE, seconds)


@lru_cache(maxsize=4096)
def zone(text: str) -> Zone:
    """The zone that Spark finds for `text`. Raises UnknownZone."""
    text = re.sub(r"([+-])(\d):", r"\g<1>0\2:", text, count=1, flags=re.ASCII)
    text = re.sub(r"([+-])(\d\d):(\d)$", r"\1\2:0\3", text, count=1, flags=re.ASCII)
    text = _SHORT.get(text, text)
    if text == "Z":
        return _fixed("Z", 0)
    if text[:1] in ("+", "-"):
        return _fixed(text, _seconds(text))
    for prefix in ("UTC", "GMT", "UT"):
        if text == prefix:
            return _fixed(text, 0)
        if text.startswith((prefix + "+", prefix + "-")):
            return _fixed(text, _seconds(text.removeprefix(prefix)))
    return _region(text)


@lru_cache(maxsize=4096)
def zone_by_id(text: str) -> Zone | None:
    """The zone that the pattern letters VV read, in any case: the name of a region, Z, or an offset with minutes, alone
    or after UTC, UT or GMT. None for all others: also for GMT+0 and GMT-0, whose offset has no minutes, although they
    name regions. Java 17 has no EST, MST and HST, newer ones have."""
    match = _ID_WITH_OFFSET.fullmatch(text)
    if match is not None or text.upper() in ("Z", "UTC", "UT", "GMT"):
        try:
            return zone(text.upper())
        except UnknownZone:
            return None
    name = _region_names().get(text.lower())
    return None if name is None else _region(name)


@lru_cache(maxsize=1)
def _region_names() -> dict[str, str]:
    names = zoneinfo.available_timezones() - _NO_ZONES - {"EST", "MST", "HST", "GMT+0", "GMT-0"}
    return {name.lower(): name for name in names if _REGION.fullmatch(name)}


def known(text: str) -> bool:
    """True if `text` is a time zone in Spark."""
    try:
        zone(text)
    except UnknownZone:
        return False
    return True


def _fixed(name: str, seconds: int) -> Zone:
    none = np.empty(0, np.int64)
    return Zone(name, none, np.array([seconds], np.int64), none)


def _seconds(text: str) -> int:
    match = _OFFSET.fullmatch(text)
    if match is None:
        raise UnknownZone(text)
    hours, minutes, seconds = (
        int(part or 0) for part in (match[2] or match[3], match[4] or match[6], match[5] or match[7])
    )
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > 18 * 3600:
        raise UnknownZone(text)
    return -total if match[1] == "-" else total


@lru_cache(maxsize=256)
def _region(name: str) -> Zone:
    if _REGION.fullmatch(name) is None or name in _NO_ZONES or name.startswith(("posix/", "right/")):
        raise UnknownZone(name)
    try:
        rules = zoneinfo.ZoneInfo(name)
        starts, offsets = _tabulated(_content(name))
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError):
        raise UnknownZone(name) from None
    _extend(rules, starts, offsets)
    before, after = np.array(offsets[:-1], np.int64), np.array(offsets[1:], np.int64)
    changes = np.array(starts, np.int64)
    return Zone(name, changes, np.array(offsets, np.int64), changes + np.maximum(before, after))


def _content(name: str) -> bytes:
    for directory in zoneinfo.TZPATH:
        path = os.path.join(directory, name)
        if os.path.isfile(path):
            with open(path, "rb") as file:
                return file.read()
    return importlib.resources.files("tzdata.zoneinfo").joinpath(name).read_bytes()


def _tabulated(content: bytes) -> tuple[list[int], list[int]]:
    """The changes that a TZif file (RFC 9636) lists: when, and the offsets before the first and after each."""
    if content[:4] != b"TZif":
        raise ValueError("no time-zone file")
    at = 0
    size = 4
    if content[4:5] >= b"2":  # the second block has 64-bit times
        counts = struct.unpack(">6l", content[20:44])
        at = 44 + _body(counts, 4)
        size = 8
    counts = struct.unpack(">6l", content[at + 20 : at + 44])
    _, _, _, times, types, _ = counts
    at += 44
    starts = list(struct.unpack(f">{times}{'q' if size == 8 else 'l'}", content[at : at + times * size]))
    at += times * size
    kinds = content[at : at + times]
    at += times
    zones = [struct.unpack(">l", content[at + 6 * i : at + 6 * i + 4])[0] for i in range(types)]
    offsets = [zones[0], *(zones[kind] for kind in kinds)]
    return starts, offsets


def _body(counts: tuple[int, ...], size: int) -> int:
    utc, wall, leaps, times, types, letters = counts
    return times * (size + 1) + types * 6 + letters + leaps * (size + 4) + wall + utc


def _extend(rules: zoneinfo.ZoneInfo, starts: list[int], offsets: list[int]) -> None:
    """Adds the changes of a rule without an end up to `_LAST_YEAR`."""
    first = max(2037, datetime.fromtimestamp(max(starts[-1], 0), UTC).year) if starts else 2037
    probes = [datetime(y, m, 15, tzinfo=UTC) for y in range(first, _LAST_YEAR + 1) for m in (1, 3, 5, 7, 9, 11)]
    last = starts[-1] if starts else -(2**62)
    known_offset = offsets[-1]
    low = probes[0]
    for probe in probes:
        found = _offset_at(rules, probe)
        if found != known_offset and probe.timestamp() > last:
            change = _change(rules, max(low, datetime.fromtimestamp(max(last, 0), UTC)), probe, known_offset)
            starts.append(change)
            offsets.append(found)
            known_offset, last = found, change
        low = probe


def _change(rules: zoneinfo.ZoneInfo, low: datetime, high: datetime, before: int) -> int:
    """The first second after `low` at which the offset is no longer `before`."""
    a, b = int(low.timestamp()), int(high.timestamp())
    while b - a > 1:
        middle = (a + b) // 2
        if _offset_at(rules, datetime.fromtimestamp(middle, UTC)) == before:
            a = middle
        else:
            b = middle
    return b


def _offset_at(rules: zoneinfo.ZoneInfo, moment: datetime) -> int:
    found = moment.astimezone(rules).utcoffset()
    assert found is not None
    return int(found / timedelta(seconds=1))
