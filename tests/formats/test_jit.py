"""Where compiled kernels are cached."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.base.cache import private_directory
from headrace.formats import warm
from headrace.formats.kernels import jit


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    for function in (jit.kernel_directory, private_directory):
        function.cache_clear()
    yield
    for function in (jit.kernel_directory, private_directory):
        function.cache_clear()


def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("HEADRACE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, "/dev/null/none")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"headrace-{os.getuid()}"


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path))
    assert jit.kernel_directory() == tmp_path / "headrace" / f"kernels-{jit.stamp()}"


def test_without_a_home_that_can_be_written_to_the_cache_is_private_and_temporary(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = nowhere(monkeypatch, tmp_path)
    assert jit.kernel_directory().parent == expected
    assert expected.stat().st_mode & 0o077 == 0


def test_a_temporary_directory_that_others_may_write_to_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trap = nowhere(monkeypatch, tmp_path)
    trap.mkdir()
    trap.chmod(0o777)
    assert jit.kernel_directory().parent != trap
    assert tmp_path in jit.kernel_directory().parents


def test_only_kernels_that_are_compiled_are_loaded_ahead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path))
    asked: list[str] = []
    monkeypatch.setattr(warm, "warm_up", lambda fmt, columns: asked.append(fmt.name))
    warm.load()
    assert asked == []
    warm.ready()
    warm.load()
    assert asked == ["json", "csv"] * 2
