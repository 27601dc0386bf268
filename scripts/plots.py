"""Draw the plots of docs/benchmarks.md from its own tables, as docs/images/bench-*.svg: `python scripts/plots.py`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
COLOURS = ("#00796b", "#bf360c", "#5c6bc0", "#8d6e63", "#c2185b", "#546e7a")
_WIDTH, _LABELS, _BAR, _GAP = 760, 210, 18, 12


@dataclass(frozen=True, slots=True)
class Plot:
    """A bar chart of a table: `section`, `after` and `header` find it, `title` stands above it. `series` are its
    columns. `after` is a text before the table, for sections with several alike; without it on the page there is no
    plot. A `curve` has a line for each column, over a logarithmic scale."""

    name: str
    section: str
    header: str
    title: str
    series: tuple[str, ...]
    after: str = ""
    curve: bool = False


PLOTS: tuple[Plot, ...] = (
    Plot(
        name="shared",
        section="make bench-shared",
        header="| | headrace, rows/s |",
        title="Rows/s of N windowed pipelines",
        series=("headrace", "N Spark queries"),
    ),
    Plot(
        name="windows",
        section="make bench-windows",
        header="| | headrace | plain Spark |",
        title="Rows/s of one windowed pipeline",
        series=("headrace", "plain Spark"),
    ),
    Plot(
        name="formats",
        section="make bench-formats",
        header="| case | headrace |",
        title="MB/s per core",
        series=("headrace", "duckdb", "polars", "pyarrow", "Spark", "headrace in a Spark task"),
    ),
    Plot(
        name="epoch",
        section="make bench-epoch",
        header="| variant | ms per epoch |",
        title="Milliseconds per small epoch (less is better)",
        series=("ms",),
    ),
)
PLOTS += tuple(
    Plot(
        name=f"peers-{workload}",
        section="make bench-peers",
        header="| rows/s | headrace |",
        title=f"Rows/s of N pipelines, workload ({workload})",
        series=("headrace", "Flink statement set", "N Spark queries", "DuckDB, one pass"),
        after=f"\n({workload}) ",
        curve=workload in "ac",
    )
    for workload in "abcd"
)


def table(page: str, plot: Plot) -> list[tuple[str, list[float | None]]]:
    """The rows of the table that a plot shows: label and values, None for an empty cell."""
    section = page[page.index(f"\n## {plot.section}\n") :]
    section = section[section.index(plot.after) :]
    lines = section[section.index(f"\n{plot.header}") + 1 :].split("\n\n")[0].split("\n")[2:]
    rows = []
    for line in lines:
        label, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        values = [_number(cell) for cell in cells[: len(plot.series)]]
        while values[-1] is None:
            values.pop()
        rows.append((label, values))
    return rows


def _number(text: str) -> float | None:
    found = re.match(r"[\d,.]+", text)
    return float(found[0].replace(",", "")) if found else None


def draw(plot: Plot, rows: list[tuple[str, list[float | None]]]) -> str:
    """The chart as SVG."""
    return "\n".join(_curves(plot, rows) if plot.curve else _bars(plot, rows)) + "\n"


def _bars(plot: Plot, rows: list[tuple[str, list[float | None]]]) -> Iterator[str]:
    several = len(plot.series) > 1
    top = 70 if several else 44
    height = top + sum(len(values) * _BAR + _GAP for _, values in rows)
    most = max(value for _, values in rows for value in values if value is not None)
    yield from _heading(plot, height)
    y = top
    for label, values in rows:
        middle = y + len(values) * _BAR / 2 + 4
        yield f'<text x="{_LABELS - 8}" y="{middle:.0f}" text-anchor="end" fill="#263238">{escape(label)}</text>'
        for value, colour in zip(values, COLOURS, strict=False):
            if value is not None:
                length = max(1.0, (_WIDTH - _LABELS - 90) * value / most)
                yield f'<rect x="{_LABELS}" y="{y}" width="{length:.1f}" height="{_BAR - 4}" fill="{colour}"/>'
                end = _LABELS + length + 6
                yield f'<text x="{end:.1f}" y="{y + 12}" font-size="11" fill="#455a64">{value:,.0f}</text>'
            y += _BAR
        y += _GAP
    yield "</svg>"


def _heading(plot: Plot, height: int) -> Iterator[str]:
    """The beginning of a picture: title, and a colour for each series if there are several."""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="system-ui, sans-serif" '
        f'font-size="13" role="img" aria-label="{escape(plot.title)}">'
    )
    yield f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
    yield f'<text x="12" y="24" font-size="15" font-weight="600" fill="#263238">{escape(plot.title)}</text>'
    at = 12.0
    for name, colour in zip(plot.series, COLOURS, strict=False) if len(plot.series) > 1 else ():
        yield f'<rect x="{at:.0f}" y="38" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{at + 17:.0f}" y="49" fill="#263238">{escape(name)}</text>'
        at += 17 + 7.4 * len(name) + 18


def _curves(plot: Plot, rows: list[tuple[str, list[float | None]]]) -> Iterator[str]:
    """A line for each series over the labels, with a line across for every power of ten."""
    known = [value for _, values in rows for value in values if value]
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    left, top, bottom = 90, 70, 390

    def x(number: int) -> float:
        return left + 30 + (_WIDTH - left - 60) * number / max(1, len(rows) - 1)

    def y(value: float) -> float:
        return bottom - (bottom - top) * (math.log10(value) - low) / max(1, high - low)

    yield from _heading(plot, bottom + 40)
    for power in range(low, high + 1):
        at = y(10.0**power)
        yield f'<line x1="{left}" y1="{at:.1f}" x2="{_WIDTH - 12}" y2="{at:.1f}" stroke="#cfd8dc"/>'
        yield f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end" fill="#455a64">{10**power:,}</text>'
    for number, (label, _) in enumerate(rows):
        yield f'<text x="{x(number):.1f}" y="{bottom + 22}" text-anchor="middle" fill="#263238">{escape(label)}</text>'
    for series, colour in enumerate(COLOURS[: len(plot.series)]):
        found = [(n, values[series]) for n, (_, values) in enumerate(rows) if series < len(values) and values[series]]
        points = [(x(n), y(value), value) for n, value in found if value is not None]
        line = " ".join(f"{across:.1f},{down:.1f}" for across, down, _ in points)
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for across, down, value in points:
            shown = f"<title>{escape(plot.series[series])}: {value:,.0f}</title>"
            yield f'<circle cx="{across:.1f}" cy="{down:.1f}" r="4" fill="{colour}">{shown}</circle>'
    yield "</svg>"


def plots() -> dict[Path, str]:
    """Every picture, by its path."""
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    shown = (plot for plot in PLOTS if plot.after in page)
    return {DOCS / "images" / f"bench-{plot.name}.svg": draw(plot, table(page, plot)) for plot in shown}


if __name__ == "__main__":
    for path, text in plots().items():
        path.write_text(text, encoding="utf-8")
