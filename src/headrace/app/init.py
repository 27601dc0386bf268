"""`headrace init`: a commented example script with data, to run at once and to change."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.errors import AlreadyExists, UnwritablePath

ROWS, FILES = 600, 3
SCRIPT = """-- A first script. Try, in this directory:
--   headrace check app.sql               finds mistakes
--   headrace explain app.sql             shows what is read, kept and guaranteed
--   headrace run app.sql --until-end     runs it until all files are read
-- The results are in out/. The state is in .headrace/; delete both to start again.

-- The stream: JSON lines in data/. Every pipeline below shares one read of it.
CREATE STREAM sensors (
  device STRING,
  ts TIMESTAMP,
  temp DOUBLE,
  hum DOUBLE, -- no pipeline reads this column, so it is never decoded
  -- Windows close when the newest ts is 10 seconds past their end.
  WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS
) WITH (source = 'files', path = 'data', format = 'json');

-- Where results go: directories of JSON lines. type = 'parquet' or 'console' work too.
CREATE SINK alarms WITH (type = 'jsonl', path = 'out/alarms');

CREATE SINK minutes WITH (type = 'jsonl', path = 'out/minutes');

-- Rows, filtered.
CREATE PIPELINE hot INTO alarms AS
  SELECT device, ts, temp
  FROM sensors
  WHERE temp > 30;

-- A result per device and minute, when the minute is over.
CREATE PIPELINE by_minute INTO minutes AS
  SELECT window.start AS minute, device, count(*) AS readings, round(avg(temp), 1) AS temp
  FROM sensors
  GROUP BY window(ts, '1 minute'), device;
"""


def write_example(directory: Path) -> list[Path]:
    """Write app.sql and data/ into `directory`, and return the paths. Raises AlreadyExists if app.sql or data is there,
    and changes nothing then."""
    script, data = directory / "app.sql", directory / "data"
    for path in (script, data):
        if path.exists():
            raise AlreadyExists(
                f"{path} exists already",
                advice=f"Name another directory: headrace init {directory.name}-2.",
                name=str(path),
            )
    try:
        data.mkdir(parents=True)
        script.write_text(SCRIPT, encoding="utf-8")
        for number in range(FILES):
            (data / f"readings-{number}.json").write_text("\n".join(_lines(number)) + "\n", encoding="utf-8")
    except OSError as problem:
        raise UnwritablePath(
            f"{directory} cannot be written to: {problem.strerror}",
            advice="Name another directory.",
            path=str(directory),
        ) from problem
    return [script, data]


def _lines(number: int) -> list[str]:
    """The readings of one file: the same ones every time."""
    chance = random.Random(number)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    rows = range(number * ROWS // FILES, (number + 1) * ROWS // FILES)
    return [
        json.dumps(
            {
                "device": f"d{i % 4}",
                "ts": (begin + timedelta(seconds=i)).isoformat(timespec="seconds").replace("+00:00", "Z"),
                "temp": round(chance.gauss(22, 5), 1),
                "hum": round(chance.uniform(30, 70), 1),
            }
        )
        for i in rows
    ]
