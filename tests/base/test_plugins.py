"""Kinds from installed packages: found by entry point, loaded when used, and coded errors for bad ones."""

from __future__ import annotations

import json
import shutil
import tomllib
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from headrace.base import plugins
from headrace.base.plugins import Registry
from headrace.errors import BadPlugin, HeadraceError
from headrace.formats import FORMATS
from headrace.sinks import SINKS
from headrace.sources import SOURCES
from tests.code import ROOT
from tests.e2e.support import put
from tests.shared.mini import Mini

REGISTRIES: list[Registry[Any]] = [SOURCES, SINKS, FORMATS]


class _Dist:
    def __init__(self, name: str) -> None:
        self.name = name


def point(package: str, name: str, value: str, group: str = "headrace.sinks") -> EntryPoint:
    made = EntryPoint(name, value, group)
    vars(made).update(dist=_Dist(package))
    return made


def install(patch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    """An environment in which only these entry points are installed."""
    patch.setattr(plugins, "_listed", lambda: EntryPoints(points))
    for registry in REGISTRIES:
        patch.setattr(registry, "_points", None)
        patch.setattr(registry, "_loaded", {})


def test_the_kinds_of_the_registries_are_the_entry_points_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    for registry in REGISTRIES:
        loaded = {n: EntryPoint(n, value, registry.group).load() for n, value in declared[registry.group].items()}
        assert loaded == {name: registry[name] for name in loaded} and set(loaded) == set(registry)


@pytest.mark.parametrize(
    ("registry", "module"),
    [(SINKS, "sinks.noop:NOOP"), (SOURCES, "sources.generator:GENERATOR"), (FORMATS, "formats.text:TEXT")],
    ids=["sinks", "sources", "formats"],
)
def test_a_kind_of_another_package_is_found_under_its_name(
    monkeypatch: pytest.MonkeyPatch, registry: Registry[Any], module: str
) -> None:
    name = module.partition(":")[2].lower()
    kind = registry[name]
    monkeypatch.setattr(registry, "_own", {})
    install(monkeypatch, point("theirs", name, f"headrace.{module}", registry.group))
    assert (list(registry), len(registry), name in registry, registry[name] is kind) == ([name], 1, True, True)
    assert "missing" not in registry and registry.get("missing") is None


@pytest.mark.parametrize(
    ("points", "packages"),
    [
        ([point("broken", "x", "no.such.module:KIND")], ["broken"]),
        ([point("broken", "x", "headrace.sinks.noop:MISSING")], ["broken"]),
        ([point("broken", "x", "headrace.formats.text:TEXT")], ["broken"]),
        ([point("broken", "x", "headrace.sinks.noop:NOOP")], ["broken"]),
        ([point("one", "x", "a:B"), point("two", "x", "a:B")], ["one", "two"]),
        ([point("one", "parquet", "headrace.sinks.parquet:PARQUET")], ["headrace", "one"]),
    ],
    ids=["no module", "no object", "another class", "another name", "twice", "a name of headrace"],
)
def test_a_bad_plugin_is_named_when_its_kind_is_used_and_harms_no_other(
    monkeypatch: pytest.MonkeyPatch, points: list[EntryPoint], packages: list[str]
) -> None:
    install(monkeypatch, *points)
    with pytest.raises(BadPlugin) as caught:
        SINKS[points[0].name]
    assert caught.value.params["packages"] == packages
    assert SINKS["jsonl"].name == "jsonl"


def installed(package: Path, site: Path) -> None:
    """Put a package of pure Python where an installer would: its modules, and the metadata of its pyproject.toml. No
    build tool is needed, which may have to be downloaded."""
    facts = tomllib.loads((package / "pyproject.toml").read_text())
    project = facts["project"]
    for name in facts["tool"]["setuptools"]["packages"]:
        shutil.copytree(package / name, site / name)
    metadata = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = project["entry-points"].items()
    lines = [line for group, points in groups for line in (f"[{group}]", *(f"{n} = {v}" for n, v in points.items()))]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")


def test_the_example_package_is_installed_and_writes_rows_exactly_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    installed(ROOT / "examples" / "plugin", site)
    monkeypatch.syspath_prepend(str(site))
    plugins._listed.cache_clear()
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, "_points", None)
    mini = Mini(tmp_path / "state", monkeypatch)
    try:
        put(tmp_path / "in" / "0.json", [json.dumps({"a": i, "b": f"x{i}"}) for i in range(5)])
        mini.hub.sql(f"""
            CREATE STREAM s (a BIGINT, b STRING) WITH (source = 'files', format = 'json', path = '{tmp_path}/in');
            CREATE SINK t WITH (type = 'tsv', path = '{tmp_path}/out', header = 'false');
            CREATE PIPELINE p INTO t AS SELECT a, b FROM s WHERE a > 1
        """)
        assert "tsv, exactly once" in mini.hub.sql("EXPLAIN PIPELINE p")[0].render()
        mini.drain()
        lines = [x for path in (tmp_path / "out").glob("part-*.tsv") for x in path.read_text().splitlines()]
        assert sorted(lines) == [f'{i}\t"x{i}"' for i in (2, 3, 4)]
        with pytest.raises(HeadraceError) as caught:
            mini.hub.sql(f"CREATE SINK u WITH (type = 'tsv', path = '{tmp_path}/out', heading = 'false')")
        assert caught.value.code == "UNKNOWN_OPTION"
    finally:
        mini.hub.close(drain=False)
        plugins._listed.cache_clear()
