"""A lost or truncated file log is an error: it is never rebuilt from a listing."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import StateDamaged
from headrace.sources.bufferlog import BufferLog
from headrace.sources.extent import Extent
from headrace.sources.filelog import FileLog


def test_an_offset_beyond_the_log_is_an_error(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "files.log")
    assert log.address(0, 0) == 0
    with pytest.raises(StateDamaged):
        log.address(0, 11)
    log.append([Extent("/in/a", 1, 0, 11, "0", True)])
    with pytest.raises(StateDamaged):
        log.address(1, 0)


def test_a_damaged_log_of_buffers_is_named(tmp_path: Path) -> None:
    (tmp_path / "buffers.log").write_bytes(b"{not json\n")
    with pytest.raises(StateDamaged):
        BufferLog(tmp_path / "buffers.log").read()
