"""An archive with headrace and all that it imports, for workers that have nothing but Python and Spark."""

from __future__ import annotations

import re
import sys
import tarfile
from importlib import metadata
from pathlib import Path

from tests.code import SOURCE

# The Python that this environment was made from. It has none of the packages.
BARE_PYTHON = getattr(sys, "_base_executable", sys.executable)
NAME = "headrace-env"


def packages() -> set[str]:
    """headrace's dependencies and theirs, without extras and without PySpark, which the workers have with Spark."""
    found: set[str] = set()
    waiting = ["headrace"]
    while waiting:
        name = waiting.pop()
        for line in metadata.requires(name) or []:
            required = re.match(r"[\w.-]+", line)
            assert required is not None
            wanted = required[0].lower()
            if "extra ==" not in line and wanted not in {*found, "pyspark", "py4j"} and _installed(wanted):
                found.add(wanted)
                waiting.append(wanted)
    return found


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:  # for another system or version of Python
        return False
    return True


def pack(target: Path) -> Path:
    """Write the archive, as `pip install --target` and `tar` would."""
    with tarfile.open(target, "w") as archive:
        for name in sorted(packages()):
            for file in metadata.distribution(name).files or []:
                if ".." not in file.parts and file.suffix != ".pyc":
                    archive.add(str(file.locate()), str(file), recursive=False)
        archive.add(SOURCE, "headrace", filter=lambda entry: None if "__pycache__" in entry.name else entry)
    return target
