"""The options of `WITH (...)`: declared once as a settings class, checked once, with good errors.

    @dataclass(frozen=True, slots=True)
    class FileSettings:
        path: str = option(text, required=True, help="directory or glob")
        tail: bool = option(boolean, default=False)

    settings = read_settings(FileSettings, "source 'files'", {"path": "/data"})

Help texts and docs are generated from the declarations (`declared`), so every usable option is documented.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar

from headrace.base.unknown import unknown
from headrace.errors import BadOption, MissingOption, UnknownOption, without_secrets

Reader = Callable[[str], Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `read` parses the text, or raises ValueError with a description of the allowed values."""

    name: str
    read: Reader
    default: Any = None
    required: bool = False
    help: str = ""
    secret: bool = False  # stored separately and never shown (`headrace.state.secrets`)
    prefix: bool = False  # stands for all options NAME.*; its value is a dictionary of them
    hidden: str = ""  # with `prefix`, a pattern of the NAME.* that are secret

    @property
    def shown(self) -> str:
        """The name in help and docs."""
        return f"{self.name}.*" if self.prefix else self.name

    def covers(self, name: str) -> bool:
        """True if it reads the option `name`, in any case of letters."""
        return name.lower().startswith(f"{self.name}.") if self.prefix else name.lower() == self.name

    def hides(self, name: str) -> bool:
        """True if it reads the option `name` and the value is secret."""
        return self.covers(name) and (self.secret or bool(self.hidden and re.search(self.hidden, name.lower())))


def option(read: Reader, *, default: Any = None, required: bool = False, help: str = "", secret: bool = False) -> Any:
    """Declares an option as a field of a settings class. The field's name is the option's name."""
    made = Option(name="", read=read, default=default, required=required, help=help, secret=secret)
    return field(default=default, metadata={"option": made})


def prefixed(*, help: str, hidden: str) -> Any:
    """Declares all options NAME.*, NAME being the field's name. The field is a dictionary of what follows the dot."""
    made = Option("", text, {}, help=help, prefix=True, hidden=hidden)
    return field(default_factory=dict, metadata={"option": made})


@cache
def declared(settings: type) -> tuple[Option, ...]:
    """The options that a settings class declares, in their order."""
    return tuple(replace(f.metadata["option"], name=f.name) for f in fields(settings) if "option" in f.metadata)


def read_settings(settings: type[T], owner: str, given: Mapping[str, str]) -> T:
    """Parse the texts of `given` into a settings object. Errors name the `owner`, as in "sink 'parquet'"."""
    kind: Any = settings
    return settings(**check_options(owner, declared(kind), given))


def text(value: str) -> str:
    """Any text."""
    return value


def boolean(value: str) -> bool:
    """`true` or `false`."""
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("true or false")
    return lowered == "true"


def integer(low: int, high: int) -> Reader:
    """A whole number in [low, high]."""

    def read(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f"a whole number from {low} to {high}") from None
        if not low <= number <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return number

    return read


def number(low: float, high: float) -> Reader:
    """A number in [low, high]."""

    def read(value: str) -> float:
        try:
            parsed = float(value)
        except ValueError:
            raise ValueError(f"a number from {low} to {high}") from None
        if not low <= parsed <= high:
            raise ValueError(f"a number from {low} to {high}")
        return parsed

    return read


def choice(*allowed: str) -> Reader:
    """One of the given words."""

    def read(value: str) -> str:
        if value.lower() not in allowed:
            raise ValueError("one of " + ", ".join(allowed))
        return value.lower()

    return read


_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def size(value: str) -> int:
    """Bytes: `1048576`, `64 MB`, `1 GiB`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError("a size such as 1048576, 64MB or 1GiB")
    return _whole(match[1], _UNITS[match[2].lower()], "a size below 8 EiB")


_SPANS = {"us": 1, "ms": 10**3, "s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6}


def duration(value: str) -> int:
    """Microseconds: `500 ms`, `10 s`, `1 min`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min|h)\s*", value)
    if match is None:
        raise ValueError("a duration such as 500ms, 10s, 1min or 1h")
    return _whole(match[1], _SPANS[match[2]], "a duration below 290,000 years")


def _whole(digits: str, unit: int, allowed: str) -> int:
    """`digits` times `unit`, exactly, rounded down. Raises ValueError when it does not fit 64 bits."""
    if len(digits) > 400 or (value := int(Fraction(digits) * unit)) >= 2**63:
        raise ValueError(allowed)
    return value


def check_options(owner: str, declared: Sequence[Option], given: Mapping[str, str]) -> dict[str, Any]:
    """Parse `given` and return the value of every declared option. Errors name the `owner`, as in "sink 'parquet'"."""
    values = {o.name: {} if o.prefix else o.default for o in declared}
    for name, raw in given.items():
        option = next((o for o in declared if o.covers(name)), None)
        if option is None:
            known = sorted(o.shown for o in declared)
            raise unknown(UnknownOption, "option", name, known, of=owner, param="option", owner=owner)
        try:
            if option.prefix:
                values[option.name][name.lower().partition(".")[2]] = option.read(raw)
            else:
                values[option.name] = option.read(raw)
        except ValueError as problem:
            shown = "***" if option.hides(name) else without_secrets(raw)  # the error may end up in a log
            raise BadOption(
                f"option '{name}' of {owner} cannot be {shown!r}",
                advice=f"It must be {problem}.",
                option=name,
                owner=owner,
                value=shown,
            ) from None
    for option in declared:
        if option.required and values[option.name] is None:
            raise MissingOption(
                f"{owner} needs the option '{option.name}'",
                advice=option.help,
                option=option.name,
                owner=owner,
            )
    return values
