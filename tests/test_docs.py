"""Documents, docstrings and comments name only what exists: every path, dotted name, option and command."""

from __future__ import annotations

import builtins
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.sinks import SINKS
from headrace.sinks.sink_kind import DELIVERY_OPTIONS
from headrace.sql import parse_script
from tests.code import ROOT, SOURCE, modules, prose

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
# A path inside the repository: at least one slash, or a file at the top by its ending.
PATH = re.compile(r"(?:src|docs|tests|bench|examples|scripts|\.ci)/[\w./-]*|[\w-]+\.(?:md|toml|txt)|Makefile")
PACKAGE_PATH = re.compile(r"\w+/(?:[\w./]+\.py)?")
DOTTED = re.compile(r"headrace(?:\.\w+)+")
# The same inside of running text, as docstrings and comments have them. A name may end at a line's end.
PROSE_PATH = re.compile(r"(?<![\w./-])(?:(?:src|docs|tests|bench|examples|scripts)/[\w./-]*\w|[\w/]+\.py\b)")
# `hub.sql` and `spark.sql.shuffle.partitions` are a variable and a setting of Spark, and no modules of ours.
AMBIGUOUS = {"hub", "spark", "state", "stream"}
ROOMS = "|".join(sorted({path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in modules()} - AMBIGUOUS))
ROOM_DOTTED = re.compile(rf"`((?:{ROOMS})(?:\.\w+)+)`")
# A class in backquotes, and the error classes that follow "Raises".
QUOTED_CLASS = re.compile(r"`(_?[A-Z]\w*[a-z]\w*)[`.(]")
RAISED = re.compile(r"\b[Rr]aises? ([^.;:]*)")
ERROR_CLASS = re.compile(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b")
CLASS = re.compile(r"^\s*(?:class )?(_?[A-Z]\w*)(?: = |: |\(|:)", re.MULTILINE)  # also type aliases
OF_LIBRARIES = {"AnalysisException", "KafkaException"}
MAKE = re.compile(r"make ([a-z-]+)\b")


def ids(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def names(path: Path) -> list[str]:
    """What stands in backquotes outside of code blocks."""
    return CODE.findall(FENCE.sub("", path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", DOCUMENTS, ids=ids)
def test_every_path_that_a_document_names_exists(path: Path) -> None:
    missing = [
        name
        for name in names(path)
        if PATH.fullmatch(name) and not (ROOT / name).exists() and not (path.parent / name).exists()
    ]
    missing += [
        name
        for name in names(path)
        if not PATH.fullmatch(name)
        and (PACKAGE_PATH.fullmatch(name) or re.fullmatch(r"\w+\.py", name))
        and not list((ROOT / "src" / "headrace").rglob(name.rstrip("/")))
    ]
    assert missing == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=ids)
def test_every_link_between_documents_leads_somewhere(path: Path) -> None:
    targets = LINK.findall(path.read_text(encoding="utf-8"))
    assert [t for t in targets if "://" not in t and not (path.parent / t).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=ids)
def test_every_dotted_name_that_a_document_uses_can_be_imported(path: Path) -> None:
    found = {name for text in names(path) for name in DOTTED.findall(text)}
    assert [name for name in sorted(found) if not _resolves(name)] == []


def _resolves(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            if not hasattr(thing, attribute):
                return attribute in getattr(thing, "__annotations__", {})
            thing = getattr(thing, attribute)
        return True
    return False


def test_every_path_that_a_docstring_or_comment_names_exists() -> None:
    missing = [
        f"{ids(path)}: {name}"
        for path in modules()
        for name in PROSE_PATH.findall(prose(path))
        if not (ROOT / name).exists() and not any(ids(module).endswith(f"/{name}") for module in modules())
    ]
    assert missing == []


def test_every_dotted_name_that_a_docstring_or_comment_uses_can_be_imported() -> None:
    used = {
        (name, ids(path))
        for path in modules()
        for text in [prose(path)]
        for name in (*DOTTED.findall(text), *(f"headrace.{found}" for found in ROOM_DOTTED.findall(text)))
    }
    assert [f"{where}: {name}" for name, where in sorted(used) if not _resolves(name)] == []


def classes_in(text: str) -> set[str]:
    """The classes that a docstring or comment names."""
    raised = {name for names in RAISED.findall(text) for name in ERROR_CLASS.findall(names)}
    return {*QUOTED_CLASS.findall(text), *raised}


def test_every_class_that_a_docstring_or_comment_names_exists() -> None:
    known = {name for path in modules() for name in CLASS.findall(path.read_text(encoding="utf-8"))}
    known |= {*dir(builtins), *OF_LIBRARIES}
    assert [f"{ids(path)}: {name}" for path in modules() for name in classes_in(prose(path)) - known] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=ids)
def test_every_make_target_that_a_document_uses_exists(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = path.read_text(encoding="utf-8")
    used = {m for block in (*FENCE.findall(text), *names(path)) for m in MAKE.findall(block)}
    assert used - targets == set()


def test_docs_list_every_sink_and_every_option_of_it() -> None:
    text = (ROOT / "docs" / "sinks.md").read_text(encoding="utf-8")
    for kind in SINKS.values():
        section = re.search(rf"^## {kind.name}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        assert section is not None, kind.name
        assert set(re.findall(r"^\| `([\w.*]+)` \|", section[1], re.MULTILINE)) == {o.shown for o in kind.options}
        assert kind.guarantee in section[1]


def test_docs_list_the_options_that_every_sink_has() -> None:
    text = (ROOT / "docs" / "sinks.md").read_text(encoding="utf-8")
    section = re.search(r"^## When a sink fails$(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    assert re.findall(r"^\| `(\w+)` \|", section[1], re.MULTILINE) == [o.name for o in DELIVERY_OPTIONS]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.sql")), ids=ids)
def test_every_example_script_is_right(path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "headrace.app.cli", "check", path.name], cwd=path.parent, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("name", ["README.md", "docs/sinks.md"])
def test_every_script_that_a_document_shows_can_be_parsed(name: str) -> None:
    scripts = re.findall(r"^```sql\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert scripts
    assert all(parse_script(script) for script in scripts)


def test_the_check_itself_finds_names_that_do_not_exist() -> None:
    assert not _resolves("headrace.nothing")
    assert not _resolves("headrace.errors.Nothing")
    assert _resolves("headrace.errors.Span.caret")
    assert PROSE_PATH.findall("see docs/no.md, (ring9/no.py) and no.py.") == ["docs/no.md", "ring9/no.py", "no.py"]
    assert ROOM_DOTTED.findall("`errors.Nothing`") == ["errors.Nothing"]
    named = classes_in("`Draft`, `Plan.text` of `NoClass(1)`. Raises NotThere, or GoneBad; no OSError here.")
    assert named == {"Draft", "Plan", "NoClass", "NotThere", "GoneBad"}
