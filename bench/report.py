"""How every benchmark ends: a line per required figure, JSON on request, and an exit code that tells."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Literal


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure and the bound it must keep."""

    name: str
    value: float
    bound: float
    must: Literal["at most", "at least"]
    unit: str = ""

    @property
    def ok(self) -> bool:
        return self.value <= self.bound if self.must == "at most" else self.value >= self.bound

    def line(self) -> str:
        verdict = "ok" if self.ok else "short"
        return f"{verdict} {self.name} {self.value:.3g}{self.unit} (required {self.must} {self.bound:g}{self.unit})"


@dataclass(slots=True)
class Report:
    """Figures and the facts beside them."""

    figures: list[Figure] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)

    def require(
        self, name: str, value: float, bound: float, must: Literal["at most", "at least"], unit: str = ""
    ) -> None:
        self.figures.append(Figure(name, value, bound, must, unit))


def environment(*packages: str) -> dict[str, object]:
    """What the numbers depend on."""
    facts: dict[str, object] = {"python": platform.python_version(), "cores": os.cpu_count()}
    return facts | {p: version(p) for p in packages}


def main(description: str, measure: Callable[[Callable[[str], None]], Report]) -> None:
    """Run `measure` with a function to say progress, print its report, exit 1 if a figure is short."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--quick", action="store_true", help="less of everything, to try it out; not every one has it")
    parser.add_argument("--only", help="names, with commas between them, of what to measure; not every one has it")
    as_json = parser.parse_args().json

    def say(text: str) -> None:
        print(text, file=sys.stderr if as_json else sys.stdout, flush=True)

    sys.exit(finish(measure(say), as_json))


def finish(report: Report, as_json: bool) -> int:
    """Print a report; the exit code, 1 if a figure is short."""
    if as_json:
        print(json.dumps(_plain(report), indent=2))
    else:
        for name, value in report.facts.items():
            print(f"{name}: {value}")
        for figure in report.figures:
            print(figure.line())
    return 0 if all(f.ok for f in report.figures) else 1


def _plain(report: Report) -> Mapping[str, object]:
    figures = [
        {"name": f.name, "value": f.value, "required": f"{f.must} {f.bound:g}", "ok": f.ok} for f in report.figures
    ]
    return {"figures": figures, **report.facts}
