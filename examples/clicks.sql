-- NDJSON files, read to their end. One pipeline writes to two sinks, which always show the same epochs.
CREATE STREAM IF NOT EXISTS clicks (
  user STRING, page STRING, at TIMESTAMP, ms INT, country STRING,
  WATERMARK FOR at AS at - INTERVAL 1 MINUTE
) WITH (source = 'files', path = 'data/clicks', format = 'json');

CREATE SINK IF NOT EXISTS screen WITH (type = 'console');
CREATE SINK IF NOT EXISTS pages WITH (type = 'jsonl', path = 'out/pages');
CREATE SINK IF NOT EXISTS slow_clicks WITH (type = 'parquet', path = 'out/slow_clicks');

CREATE PIPELINE IF NOT EXISTS per_page INTO screen, pages AS
  SELECT window.start AS since, page, count(*) AS clicks, max(ms) AS slowest
  FROM clicks GROUP BY window(at, '5 minutes'), page;

CREATE PIPELINE IF NOT EXISTS slow INTO slow_clicks AS
  SELECT user, page, ms FROM clicks WHERE ms >= 500;
