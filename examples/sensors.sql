-- An endless generated stream, a filter to the console and a windowed aggregate to Parquet.
-- Ctrl-C finishes the running epoch; the next run goes on where this one stopped.
CREATE STREAM IF NOT EXISTS sensors (
  device STRING, ts TIMESTAMP, temp DOUBLE, hum DOUBLE, batt DOUBLE, status STRING,
  WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS
) WITH (source = 'generator', format = 'json', rate = '1000', step = '20ms', disorder = '0.05', spread = '5s');

CREATE SINK IF NOT EXISTS screen WITH (type = 'console', max_rows = '5');
CREATE SINK IF NOT EXISTS minutes WITH (type = 'parquet', path = 'out/minutes');

CREATE PIPELINE IF NOT EXISTS hot INTO screen AS
  SELECT device, ts, temp FROM sensors WHERE temp > 33;

CREATE PIPELINE IF NOT EXISTS by_minute INTO minutes AS
  SELECT window.start AS minute, device, count(*) AS readings, avg(temp) AS temp
  FROM sensors GROUP BY window(ts, '1 minute'), device;
