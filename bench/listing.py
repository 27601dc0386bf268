"""What an idle stream of files costs: the share of a core that looking for new files takes, with 20,000 files there.

The source is asked as Spark's planning process asks it: for the newest offset and whether it is exhausted, every 10 ms.
The first seconds, in which all files are listed and logged, are left out. Then one file is added, and the time until it
is seen is taken; and the same for files that grow.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.report import Report, environment, main
from headrace.model.program import StreamDef
from headrace.model.schema import BIGINT, Field, Schema
from headrace.sources import SOURCES
from headrace.sources.source_kind import SourceOffset, StreamSource

FILES, ASK_EVERY, SETTLE, MEASURED = 20_000, 0.01, 8.0, 30.0


def idle(source: StreamSource, at: SourceOffset, seconds: float) -> float:
    """The share of a core that an idle source takes."""
    began, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        assert source.latest(at, None) == at, "not idle"
        source.exhausted(at)
        time.sleep(ASK_EVERY)
    return (time.process_time() - used) / (time.perf_counter() - began)


def seen_after(source: StreamSource, at: SourceOffset, path: Path) -> float:
    """Seconds until a new file is in the newest offset."""
    path.write_text('{"n": 1}\n')
    began = time.perf_counter()
    while source.latest(at, None) == at:
        time.sleep(ASK_EVERY)
    return time.perf_counter() - began


def one(directory: Path, tail: bool, files: int, seconds: float, say: Callable[[str], None]) -> tuple[float, float]:
    """Share of a core while idle, and seconds until a new file is seen."""
    data = directory / "data"
    data.mkdir(parents=True)
    for i in range(files):
        (data / f"{i:06}.json").write_text('{"n": 1}\n')
    schema = Schema((Field("n", BIGINT),))
    options = {"path": str(data), **({"tail": "true"} if tail else {})}
    source = SOURCES["files"].make(StreamDef("s", schema, None, 0, "files", "json", options), directory, time.time)
    at = source.latest(source.initial(), None)
    idle(source, at, SETTLE)
    share = idle(source, at, seconds)
    wait = seen_after(source, at, data / "new.json")
    kind = "files that grow" if tail else "immutable files"
    say(f"{files:,} {kind}: {100 * share:.1f} % of a core while idle; a new file is seen after {wait:.2f} s")
    return 100 * share, wait


def measure(say: Callable[[str], None]) -> Report:
    report = Report(facts=environment())
    quick = "--quick" in sys.argv
    files, seconds = (2000, 6.0) if quick else (FILES, MEASURED)
    with tempfile.TemporaryDirectory() as work:
        for tail in (False, True):
            share, wait = one(Path(work) / str(tail), tail, files, seconds, say)
            kind = "tail" if tail else "immutable"
            report.require(f"idle_{kind}_{files}_files", share, 5, "at most", " % of a core")
            report.require(f"new_{kind}_file_seen", wait, 5, "at most", " s")
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
