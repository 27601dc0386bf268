"""The documentation site: its navigation, its plots, its links, and that it loads nothing from the network."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.model.bad_reasons import REASONS
from scripts import plots, site
from tests.code import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as mkdocs and GitHub make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_navigation_lists_every_page_and_no_other() -> None:
    listed = site.listed((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert [page for page in listed if not (DOCS / page).exists()] == []
    added = [page for pages in site.unlisted(listed).values() for page in pages]
    assert sorted([*listed, *added]) == [p.relative_to(DOCS).as_posix() for p in PAGES]
    assert "design/2026-11-16-founding.md" in site.unlisted(listed)["Design decisions"]


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_link_to_a_heading_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text(encoding="utf-8"))
    targets = [((page.parent / path) if path else page, anchor) for path, anchor in links]
    assert [f"{path.name}#{anchor}" for path, anchor in targets if anchor not in anchors(path)] == []


def test_pages_link_only_to_files_of_the_site() -> None:
    outside = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).resolve().is_relative_to(DOCS)
    ]
    assert outside == []


def test_the_plots_show_the_figures_of_the_page() -> None:
    """If this fails: python scripts/plots.py"""
    for path, text in plots.plots().items():
        assert path.read_text(encoding="utf-8") == text, path
        assert f"(images/{path.name})" in (DOCS / "benchmarks.md").read_text(encoding="utf-8")


def test_a_curve_has_a_point_for_every_figure_and_larger_ones_are_higher() -> None:
    plot = plots.Plot("x", "", "", "a title", ("one", "two"), curve=True)
    picture = plots.draw(plot, [("N = 1", [1_000.0, 20.0]), ("N = 2", [100.0, None]), ("N = 4", [99_000.0])])
    assert picture.count("<polyline") == 2
    points = re.findall(r'cx="([\d.]+)" cy="([\d.]+)".*?<title>(\w+): ([\d,]+)<', picture)
    assert [(name, value) for _, _, name, value in points] == [
        ("one", "1,000"), ("one", "100"), ("one", "99,000"), ("two", "20"),
    ]  # fmt: skip
    heights = {value: float(down) for _, down, _, value in points}
    assert heights["99,000"] < heights["1,000"] < heights["100"] < heights["20"]
    # A power of ten is as high everywhere: the scale is logarithmic.
    assert heights["100"] - heights["1,000"] == pytest.approx((heights["20"] - heights["99,000"]) / 3.695, rel=0.01)


def test_every_reason_for_a_rejection_is_documented() -> None:
    page = (DOCS / "formats.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z_0-9`, ]+`) \| ", page[page.index("| reason | structure |") :], re.MULTILINE)
    assert sorted(reason for row in rows for reason in re.findall(r"`(\w+)`", row)) == sorted(REASONS)
    assert "`null_event_time`" in page


@pytest.mark.parametrize("name", ["operations.md", "comparison.md", "faq.md"])
def test_figures_that_other_pages_quote_are_those_of_the_benchmarks(name: str) -> None:
    """A line that names a benchmark has only figures that the page of benchmarks has, too."""
    known = set(re.findall(r"\d[\d,.]*\d", (DOCS / "benchmarks.md").read_text(encoding="utf-8")))
    lines = [line for line in (DOCS / name).read_text(encoding="utf-8").split("\n") if "`make bench-" in line]
    quoted = [number for line in lines for number in re.findall(r"(?<![\w.])\d[\d,.]*\d(?![\w.])", line)]
    assert [number for number in quoted if len(number) > 2 and number not in known] == []


def test_the_site_builds_without_warnings_and_loads_nothing_from_the_network(tmp_path: Path) -> None:
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs is not installed: make docs installs it")
    answer = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES)
    loaded = r"<(?:script|img|iframe|link rel=\W?(?:stylesheet|preconnect))[^>]*(?:src|href)=\W?(?:https?:)?//[^ >]+"
    assert [found for page in pages for found in re.findall(loaded, page.read_text(encoding="utf-8"))] == []
