"""A command whose output nobody reads ends without a word, as in `headrace explain app.sql | head -1`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """CREATE STREAM s (a INT) WITH (source = 'files', format = 'json', path = '{}');
CREATE SINK out WITH (type = 'console'); CREATE PIPELINE p INTO out AS SELECT a FROM s;"""


@pytest.mark.parametrize("command", [["check"], ["check", "--json"], ["explain"], ["fmt"]])
def test_a_command_whose_reader_is_gone_ends_without_an_error_message(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "in").mkdir()
    script = tmp_path / "app.sql"
    script.write_text(SCRIPT.format(tmp_path / "in"))
    reads, writes = os.pipe()
    os.close(reads)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "headrace", command[0], str(script), *command[1:]],
            stdout=writes,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        os.close(writes)
    assert ended.stderr == ""
    assert ended.returncode in (0, 1)  # fmt writes nothing
