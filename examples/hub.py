"""The Python API: a stream, pipelines that join and leave while it runs, and results as Arrow and pandas."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import headrace

STREAM = """
CREATE STREAM sensors (
  device STRING, ts TIMESTAMP, temp DOUBLE, hum DOUBLE, batt DOUBLE, status STRING,
  WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS
) WITH (source = 'generator', format = 'json', rate = '5000', step = '10ms');
CREATE SINK kept WITH (type = 'memory');
"""
HOT = "CREATE PIPELINE hot INTO kept AS SELECT device, temp FROM sensors WHERE temp > 33"
POWER = """
CREATE SINK power_kept WITH (type = 'memory');
CREATE PIPELINE power INTO power_kept AS
  SELECT window.start AS minute, min(batt) AS lowest FROM sensors GROUP BY window(ts, '1 minute')
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as state, headrace.connect(state_dir=Path(state) / "state") as hub:
        hub.sql(STREAM)
        hub.sql(HOT)
        print("decoding", hub.streams["sensors"].status().decoding_columns)
        hub.sql(POWER)  # joins the running stream: `batt` is decoded from its first epoch on
        time.sleep(10)
        print("decoding", hub.streams["sensors"].status().decoding_columns)
        hub.pipelines["hot"].stop()
        print(hub.pipelines["hot"].results().to_pandas().tail())
        print(hub.pipelines["power"].results().to_pandas().tail())


if __name__ == "__main__":
    main()
