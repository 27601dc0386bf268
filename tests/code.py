"""The source of the package as tests read it: parsed once for all tests of a process."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "headrace"
COMMENT = re.compile(r"(?:^|\s)(#\s.*)$", re.MULTILINE)


@cache
def modules() -> tuple[Path, ...]:
    """Every module of the package."""
    return tuple(sorted(SOURCE.rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def prose(path: Path) -> str:
    """The docstrings and comments of a module."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) or "" for node in ast.walk(tree(path)) if isinstance(node, documented)]
    # By pattern, because `tokenize` takes ten times as long. It also finds a "#" inside of a string, which does no
    # harm.
    return "\n".join([*found, *COMMENT.findall(path.read_text(encoding="utf-8"))])
