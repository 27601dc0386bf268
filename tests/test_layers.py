"""Imports point downwards only, and Spark is imported in one package only."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.code import SOURCE, modules, tree

# From the bottom up. A room may import lower rooms and itself. Rooms of one level do not import each other.
LEVELS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("base",),
    ("model", "brokers", "stores"),
    ("exec", "formats", "control"),
    ("ingress", "sinks"),
    ("sources",),
    ("bridge", "sql"),
    ("ring0", "ring1", "state"),
    ("spark",),
    ("stream",),
    ("hub",),
    ("service",),
    ("app",),
    ("__main__",),
)
# Inside sql, from the bottom up: a statement passes through these in order.
SQL_LEVELS: tuple[tuple[str, ...], ...] = (
    ("parse",),
    ("names", "altering"),
    ("plan",),
    ("functions",),
    ("bind",),
    ("render",),
    ("rules",),
    ("computed_columns",),
    ("define",),
    ("lowering", "pipeline_options"),
    ("hosts",),
    ("views",),
    ("planner",),
    ("explain",),
    ("__init__",),
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
SPARK_PACKAGE = "spark"
# Only here may sqlglot be imported: it breaks in minor releases.
SQLGLOT_MODULE = "sql/parse/dialect.py"


@cache
def imports(path: Path) -> tuple[tuple[str, int], ...]:
    """Every module that `path` imports when it runs, anywhere in it, with the line. Imports for types do not count."""
    package = ["headrace", *path.relative_to(SOURCE).parent.parts]
    nodes = list(ast.walk(tree(path)))
    for_types = {
        id(inner)
        for node in nodes
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found: list[tuple[str, int]] = []
    for node in nodes:
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module == "headrace":
                found += [(f"headrace.{alias.name}", node.lineno) for alias in node.names]
            else:
                found.append((module, node.lineno))
    return tuple(found)


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def owner(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def violations(path: Path) -> list[str]:
    mine = owner(path)
    found = []
    for module, line in imports(path):
        if not re.match(r"headrace(\.|$)", module):
            continue
        other = part_of(module)
        if mine in ("", other):
            continue
        if other == "" and LEVEL[mine] <= LEVEL["hub"]:
            found.append(f"{path}:{line}: {mine} imports the package's own top")
        elif other and LEVEL[other] >= LEVEL[mine]:
            found.append(f"{path}:{line}: {mine} imports {other}")
    return found


def test_every_module_is_in_a_room() -> None:
    assert {owner(path) for path in modules()} - {""} <= set(LEVEL)


def test_imports_point_downwards_only() -> None:
    assert [problem for path in modules() for problem in violations(path)] == []


def test_imports_inside_sql_follow_the_steps_of_planning() -> None:
    level = {part: number for number, parts in enumerate(SQL_LEVELS) for part in parts}
    found = []
    for path in sorted((SOURCE / "sql").rglob("*.py")):
        mine = path.relative_to(SOURCE / "sql").parts[0].removesuffix(".py")
        for module, line in imports(path):
            if module.startswith("headrace.sql."):
                other = module.split(".")[2]
                if other != mine and level[other] >= level[mine]:
                    found.append(f"{path}:{line}: {mine} imports {other}")
            elif module == "headrace.sql":
                found.append(f"{path}:{line}: {mine} imports the top of sql")
    assert found == []


@pytest.mark.parametrize(
    ("library", "allowed"),
    [
        ("pyspark", lambda path: owner(path) == SPARK_PACKAGE),
        ("sqlglot", lambda path: path.relative_to(SOURCE).as_posix() == SQLGLOT_MODULE),
        ("typer", lambda path: path.relative_to(SOURCE).as_posix() in ("app/cli.py", "app/cli_options.py")),
    ],
)
def test_a_library_is_imported_only_where_it_belongs(library: str, allowed: object) -> None:
    assert callable(allowed)
    found = [
        f"{path}:{line}"
        for path in modules()
        for module, line in imports(path)
        if module.split(".")[0] == library and not allowed(path)
    ]
    assert found == []


def test_the_check_sees_relative_nested_and_package_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    bad = tmp_path / "formats" / "bad.py"
    bad.parent.mkdir()
    bad.write_text(
        "from .. import hub\ndef f():\n    import headrace.spark.session\nfrom headrace import sinks\n"
        "if TYPE_CHECKING:\n    from headrace.app.cli import app\n"
    )
    assert [v.rsplit(" ", 1)[1] for v in violations(bad)] == ["hub", "sinks", "spark"]
