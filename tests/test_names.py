"""One name, one meaning: no two classes, type aliases or modules of the package share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.code import SOURCE, modules, tree

# Packages and modules that share a name on purpose, with the reason.
SHARED = {
    "kernels": "functions on arrays, in each room that has some",
    "hub": "the room, and its door",
}
# The modules of this package are named after the objects of the paths that they answer, such as `savepoints`.
ROUTES = "routes"


def defined(path: Path) -> Iterator[str]:
    """The classes and type aliases of a module, without leading underscores. An alias has a capital and a small
    letter; a constant has no small letter, and a variable begins with one. A TypeVar has one letter."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ClassDef):
            yield node.name.lstrip("_")
    blocks = [tree(path).body, *(node.body for node in tree(path).body if isinstance(node, ast.If))]
    for node in (node for body in blocks for node in body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        name = target.id.lstrip("_") if isinstance(target, ast.Name) else ""
        if name[:1].isupper() and not name.isupper():
            yield name


def shared(found: dict[str, set[str]]) -> dict[str, list[str]]:
    return {name: sorted(where) for name, where in sorted(found.items()) if len(where) > 1}


def shared_definitions() -> dict[str, list[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in modules():
        counted: dict[str, int] = defaultdict(int)
        for name in defined(path):
            counted[name] += 1
            found[name].add(f"{path.relative_to(SOURCE)} {counted[name]}")
    return shared(found)


def shared_modules() -> dict[str, list[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in modules():
        place = path.relative_to(SOURCE)
        if place.name == "__init__.py":
            found[place.parent.name].add(str(place.parent))
        elif place.parent.name != ROUTES:
            found[place.stem].add(str(place))
    return shared(found)


def test_no_two_classes_or_aliases_share_a_name() -> None:
    assert shared_definitions() == {}


def test_no_two_modules_share_a_name_but_those_on_the_list() -> None:
    found = shared_modules()
    assert found.keys() == SHARED.keys(), found


def test_the_check_sees_classes_aliases_and_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = "class _Kind: ...\nT = 1\nLIMIT = 2\nfast = 3\n", "if x:\n    Kind = int | str\nT = 2\nLIMIT = 2\n"
    for room, text in {"a": one, "b": other}.items():
        (tmp_path / room).mkdir()
        (tmp_path / room / "same.py").write_text(text)
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    monkeypatch.setitem(globals(), "modules", lambda: tuple(sorted(tmp_path.rglob("*.py"))))
    assert shared_definitions() == {"Kind": ["a/same.py 1", "b/same.py 1"]}
    assert shared_modules() == {"same": ["a/same.py", "b/same.py"]}
