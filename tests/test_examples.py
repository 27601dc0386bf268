"""Every public object has a docstring with an example, every example runs, and docs/api.md is made from them."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.hub.hub import Hub
from scripts import api_page
from tests.code import ROOT, SOURCE, modules
from tests.examples import MORE, example_names, examples_of, run_example

# Runs with Spark: tests/e2e/test_examples_on_spark.py.
NEEDS_SPARK = {"headrace.hub.hub.Hub.spark"}
WITH_EXAMPLES = [path for path in modules() if ">>> " in path.read_text(encoding="utf-8")]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with example_names(tmp_path_factory.mktemp("examples") / "first") as found:
        yield found


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("module", [name_of(path) for path in WITH_EXAMPLES])
def test_every_example_in_a_docstring_runs(module: str, names: dict[str, Any]) -> None:
    loaded = importlib.import_module(module)
    found = [e for e in doctest.DocTestFinder().find(loaded, module, globs=vars(loaded) | names) if e.examples]
    assert found
    assert "".join(run_example(example) for example in found if example.name not in NEEDS_SPARK) == ""


@pytest.mark.parametrize(("name", "thing"), [*api_page.documented()], ids=[n for n, _ in api_page.documented()])
def test_every_public_object_has_a_docstring_with_an_example(name: str, thing: object) -> None:
    text = inspect.getdoc(thing) or ""
    assert examples_of(text, {}, name).examples
    assert not text.startswith(">>>")


def test_the_page_of_the_api_is_made_from_the_docstrings() -> None:
    """If this fails: python scripts/api_page.py"""
    assert api_page.TARGET.read_text(encoding="utf-8") == api_page.render()
    assert MORE.strip() == api_page.MORE


def test_a_wrong_example_is_found() -> None:
    assert "Expected:" in run_example(examples_of(">>> 1 + 1\n3\n", {}, "wrong"))


def test_the_example_that_needs_spark_is_still_there() -> None:
    assert inspect.getdoc(Hub.spark)
    assert (ROOT / "tests" / "e2e" / "test_examples_on_spark.py").exists()
