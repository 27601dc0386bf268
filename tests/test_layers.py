"""Imports point downwards only, and Spark is imported in one package only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "headrace"

# From the bottom up. A part may import the parts of lower layers, and itself; parts of one layer do not know each
# other, except in the first, which holds what everybody shares.
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "backpressure",
        "errors",
        "failures",
        "faults",
        "durable",
        "stored",
        "interrupts",
        "cache",
        "chores",
        "exclusive",
        "java",
        "logs",
        "memory",
        "options",
        "planning",
        "schema",
        "program",
        "codec",
        "duck",
        "sizing",
        "aggregates",
        "status",
        "results",
        "budget",
        "tables",
    ),
    ("streams", "formats", "control"),
    ("ingress",),
    ("sources", "sinks"),
    ("bridge",),
    ("ring0", "ring1"),
    ("sql", "redeclaring"),
    ("sealing", "undo"),
    ("draft",),
    ("checking",),
    ("savepoints",),
    ("restoring", "repairing"),
    ("spark",),
    ("inflight", "owing", "reserve", "wholeness", "engine", "epochlog", "history", "intake", "keeper"),
    ("watch",),
    ("account",),
    ("runtime", "objects"),
    ("describe", "ending"),
    ("published",),
    ("conductor",),
    ("hub",),
    ("service",),
    ("view",),
    ("running", "demo", "watching"),
    ("serving",),
    ("cli",),
    ("__main__",),
)
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}
# The planner sits high because it reads the registries of what it plans for, but it must not know the engines.
SQL_MAY_IMPORT = {*LAYERS[0], "streams", "formats", "sources", "sinks", "control", "sql"}
SPARK_PACKAGE = "spark"
# Only here may sqlglot be imported: it breaks in minor releases.
SQLGLOT_MODULE = "sql/dialect.py"


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that `path` imports when it runs, anywhere in it, with the line. Imports for types do not count."""
    package = ["headrace", *path.relative_to(SOURCE).parent.parts]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module == "headrace":
                for alias in node.names:
                    yield f"headrace.{alias.name}", node.lineno
            else:
                yield module, node.lineno


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
        elif other and LEVEL[other] >= LEVEL[mine] and not LEVEL[other] == LEVEL[mine] == 0:
            found.append(f"{path}:{line}: {mine} imports {other}")
        elif other and mine == "sql" and other not in SQL_MAY_IMPORT:
            found.append(f"{path}:{line}: the planner imports {other}")
    return found


def test_every_part_has_a_layer() -> None:
    assert {owner(path) for path in modules()} - {""} <= set(LEVEL)


def test_imports_point_downwards_only() -> None:
    assert [problem for path in modules() for problem in violations(path)] == []


@pytest.mark.parametrize(
    ("library", "allowed"),
    [
        ("pyspark", lambda path: owner(path) == SPARK_PACKAGE),
        ("sqlglot", lambda path: path.relative_to(SOURCE).as_posix() == SQLGLOT_MODULE),
        ("typer", lambda path: owner(path) == "cli"),
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
        "if TYPE_CHECKING:\n    from headrace.cli import app\n"
    )
    assert [v.rsplit(" ", 1)[1] for v in violations(bad)] == ["hub", "sinks", "spark"]
