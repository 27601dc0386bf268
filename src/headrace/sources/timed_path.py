"""A path with the time in it, `/data/{yyyy}/{MM}/{dd}`: which directories may still get files. Pure.

The time is UTC. The parts go from the year to the day or hour, without a gap; several may be in one name, as in
`dt={yyyy}-{MM}-{dd}`. What follows the last of them may have wildcards.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from headrace.errors import BadOption

_PARTS = ("yyyy", "MM", "dd", "HH")
_DIGITS = {"yyyy": 4, "MM": 2, "dd": 2, "HH": 2}
_FORMAT = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H"}
_PART = re.compile(r"\{(yyyy|MM|dd|HH)\}")


def is_timed(path: str) -> bool:
    """True if a path has the time in it."""
    return _PART.search(path) is not None


class TimedPath:
    """The directories of a path with the time in it. Times are seconds since 1970."""

    def __init__(self, path: str) -> None:
        """Raises BadOption if the parts of the time are not in order."""
        self.path = path
        found = _PART.findall(path)
        if tuple(dict.fromkeys(found)) != _PARTS[: len(set(found))]:
            raise BadOption(
                f"the time in {path} is not complete",
                advice="Begin with {yyyy}, then {MM}, {dd} and {HH}, as far as the directories go.",
                option="path",
            )
        self._finest = _PARTS[len(set(found)) - 1]
        self._times = re.compile(self._expression())

    @property
    def root(self) -> str:
        """The directory above the first name with a time in it."""
        return self.path[: self.path.index("{")].rpartition("/")[0]

    @property
    def everything(self) -> str:
        """A glob pattern for the files of all times. A path whose last name has no wildcard is that of directories."""
        files = "" if set("*?[") & set(self.path.rpartition("/")[2]) else "/*"
        return _PART.sub(lambda part: "[0-9]" * _DIGITS[part[1]], self.path) + files

    def _expression(self) -> str:
        """A regular expression that finds the time in the path of a file. Only names up to the last part count."""
        end = max(match.end() for match in _PART.finditer(self.path))
        out, at = "", 0
        for match in _PART.finditer(self.path):
            named = f"(?P<{match[1]}>[0-9]{{{_DIGITS[match[1]]}}})"
            again = f"(?P={match[1]})"
            out += re.escape(self.path[at : match.start()]) + (again if f"<{match[1]}>" in out else named)
            at = match.end()
        return out + re.escape(self.path[at:end])

    def floor(self, time: float) -> float:
        """The beginning of the period that contains a time."""
        return self._begin(time).timestamp()

    def _begin(self, time: float) -> datetime:
        at = datetime.fromtimestamp(time, UTC).replace(minute=0, second=0, microsecond=0)
        if self._finest == "HH":
            return at
        at = at.replace(hour=0)
        if self._finest == "dd":
            return at
        return at.replace(day=1) if self._finest == "MM" else at.replace(day=1, month=1)

    def between(self, since: float, until: float) -> list[str]:
        """The paths of all periods that overlap [since, until], and of the next one: the clock of a writer may be
        ahead."""
        at, last, found = self._begin(since), self._next(self._begin(until)), []
        while at <= last:
            found.append(_PART.sub(lambda part, at=at: at.strftime(_FORMAT[part[1]]), self.path))  # type: ignore[misc]
            at = self._next(at)
        return found

    def _next(self, at: datetime) -> datetime:
        step = {
            "HH": timedelta(hours=1),
            "dd": timedelta(days=1),
            "MM": timedelta(days=32),
            "yyyy": timedelta(days=367),
        }
        return self._begin((at + step[self._finest]).timestamp())

    def time_of(self, file: str) -> float | None:
        """The beginning of the period of a file; None if it has no time that exists in its path."""
        found = self._times.match(file)
        if found is None:
            return None
        known = {name: int(value) for name, value in found.groupdict().items()}
        try:
            day = datetime(known["yyyy"], known.get("MM", 1), known.get("dd", 1), known.get("HH", 0), tzinfo=UTC)
        except ValueError:
            return None
        return day.timestamp()
