"""Record Java's archive of Spark's classes after installing, so that sessions start faster.

`python scripts/archive.py`: a short run of a pipeline tells Java which classes to keep. Doing it again replaces the
file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import headrace
from headrace.model.program import Meaning
from headrace.spark import archive
from headrace.spark.java import find_java
from headrace.spark.session import start

SCRIPT = """
CREATE STREAM s (n BIGINT, ts TIMESTAMP, value DOUBLE, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND)
WITH (source = 'generator', format = 'json', rows = '1000');
CREATE SINK out WITH (type = 'memory');
CREATE PIPELINE p INTO out AS SELECT window.end, count(*), avg(value) FROM s GROUP BY window(ts, '1 second');
"""


def main() -> None:
    """Run the script on a session that records, then put the archive in its place."""
    target = archive.location(find_java())
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory(dir=target.parent) as beside:
        fresh = Path(beside) / target.name
        engine = start("local[2]", Path(directory) / "spark.log", Meaning(), archive.recording(fresh))
        try:
            with headrace.connect(Path(directory) / "state", spark=engine.spark) as hub:
                hub.sql(SCRIPT)
                hub.wait_until_end()
        finally:
            engine.stop()
        if not fresh.exists():  # Java writes it when it ends, and did not end in time on a busy machine
            print("Spark's classes were not recorded; sessions take longer to start", file=sys.stderr)
            return
        for old in target.parent.glob("spark-*.jsa"):
            old.unlink()
        os.replace(fresh, target)
    print(f"{target.stat().st_size / 1e6:.0f} MB in {target.parent}")


if __name__ == "__main__":
    main()
