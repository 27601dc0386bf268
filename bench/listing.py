"""What an idle stream of files costs: the share of a core that looking for new files takes, with 20,000 files there.

The source is asked as Spark's planning process asks it: for the newest offset and whether it is exhausted, every 10 ms.
The first seconds, in which all files are listed and logged, are left out. Then one file is added, and the time until it
is seen is taken; and the same for files that grow.

Then 1,000,000 files in directories of days, 100 with 10,000 files each, and a path with the time in it: the stream
lists and remembers only the days of the lookback.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.report import Report, environment, main
from headrace.model.definitions import StreamDef
from headrace.model.schema import BIGINT, Field, Schema
from headrace.sources import SOURCES
from headrace.sources.source_kind import SourceOffset, StreamSource

FILES, ASK_EVERY, SETTLE, MEASURED = 20_000, 0.01, 8.0, 30.0
DAYS, A_DAY = 100, 10_000


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


def timed(directory: Path, days: int, a_day: int, seconds: float, say: Callable[[str], None]) -> tuple[float, float]:
    """Share of a core while idle, and seconds until a new file is seen, with the time in the path."""
    today, made = datetime.now(UTC), time.perf_counter()
    for back in range(days):
        data = directory / "data" / f"{today - timedelta(days=back):%Y/%m/%d}"
        data.mkdir(parents=True)
        for i in range(a_day):
            (data / f"{i:06}.json").touch()
    schema, path = Schema((Field("n", BIGINT),)), f"{directory}/data/{{yyyy}}/{{MM}}/{{dd}}"
    stream = StreamDef("s", schema, None, 0, "files", "json", {"path": path, "lookback": "24h"})
    listed = time.perf_counter()
    source = SOURCES["files"].make(stream, directory, time.time)
    at = source.latest(source.initial(), None)
    say(f"made {days * a_day:,} files in {listed - made:.0f} s; logged in {time.perf_counter() - listed:.0f} s")
    (directory / "data" / f"{today:%Y/%m/%d}" / "first.json").write_text('{"n": 1}\n')
    while (then := source.latest(at, None)) == at:
        time.sleep(ASK_EVERY)
    source.commit(then)  # as after the first epoch: the log is compacted
    idle(source, then, SETTLE)
    share = idle(source, then, seconds)
    wait = seen_after(source, then, directory / "data" / f"{datetime.now(UTC):%Y/%m/%d}" / "new.json")
    say(
        f"{days * a_day:,} files by day: {100 * share:.1f} % of a core while idle; a new one is seen after {wait:.2f} s"
    )
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
        days, a_day = (20, 1000) if quick else (DAYS, A_DAY)
        share, wait = timed(Path(work) / "timed", days, a_day, seconds, say)
        report.require(f"idle_by_day_{days * a_day}_files", share, 5, "at most", " % of a core")
        report.require("new_file_by_day_seen", wait, 5, "at most", " s")
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
