"""`headrace repair` of streams that have no journal. tests/shared/test_pushed.py repairs journals."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import UnknownStream
from headrace.state.journal_repair import repair_journal
from headrace.state.state_dir import write_version


@pytest.mark.parametrize(("asked", "meant"), [("reading", "readings"), ("a/c", "a/b"), ("elsewhere", None)])
def test_an_unknown_stream_is_an_error_that_suggests_one_with_a_journal(
    tmp_path: Path, asked: str, meant: str | None
) -> None:
    write_version(tmp_path)
    for directory in ("readings", "a%2Fb"):
        (tmp_path / "streams" / directory / "source" / "journal").mkdir(parents=True)
    (tmp_path / "streams" / "reading_files" / "source").mkdir(parents=True)
    with pytest.raises(UnknownStream) as raised:
        repair_journal(tmp_path, asked)
    assert raised.value.params["did_you_mean"] == meant
    assert raised.value.params["name"] == asked
