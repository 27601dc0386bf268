"""`headrace fmt`: formats scripts in place, or lists those that are not formatted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from headrace.app.checking import read_script
from headrace.base.durable import write_atomic
from headrace.sql import parse_script
from headrace.sql.parse.layout import formatted


def format_scripts(scripts: Sequence[Path], check: bool) -> int:
    """Format each script. Returns the exit code: with `check` 1 if one is not formatted, otherwise 0. A script that
    cannot be parsed is left as it is, and raises its error."""
    code = 0
    for script in scripts:
        text = read_script(script)
        parse_script(text)
        made = formatted(text)
        if str(script) == "-" and not check:
            print(made, end="")
        elif made != text and check:
            print(f"{script} is not formatted", file=sys.stderr)
            code = 1
        elif made != text:
            write_atomic(script, made.encode())
            print(f"formatted {script}")
    return code
