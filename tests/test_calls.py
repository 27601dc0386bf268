"""A call with five arguments or more names all but the first two."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.code import SOURCE, modules, tree

MOST_POSITIONAL = 4
# Rows of a table read better without names, and rows of the bridge are made in a loop. Libraries have a `pack` and an
# `info` that take values by place.
BY_PLACE = {"_overload", "Row", "pack", "info"}


def takes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """True if the arguments of a function can be named."""
    return not function.args.vararg and not function.args.posonlyargs


def own_functions() -> set[str]:
    """Names whose every definition in the package can take named arguments. Kernels cannot: Numba matches by place."""
    found: dict[str, list[bool]] = defaultdict(list)
    for path in modules():
        kernel = "kernel" in str(path.relative_to(SOURCE))
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[node.name].append(takes(node) and not kernel)
            elif isinstance(node, ast.ClassDef):
                starts = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
                found[node.name].append(all(takes(start) for start in starts))
    return {name for name, named in found.items() if all(named)}


def test_calls_with_many_arguments_name_them() -> None:
    own = own_functions() - BY_PLACE
    wrong = [
        f"{path.relative_to(SOURCE)}:{call.lineno} {ast.unparse(call.func)}"
        for path in modules()
        if "kernel" not in str(path.relative_to(SOURCE))
        for call in ast.walk(tree(path))
        if isinstance(call, ast.Call) and len(call.args) > MOST_POSITIONAL
        if not any(isinstance(arg, ast.Starred) for arg in call.args)
        if (call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")) in own
    ]
    assert not wrong
