-- One stream of twenty columns. Event time runs 20 times faster than the clock, and one row in twenty comes late.
CREATE STREAM sensors (
  ts TIMESTAMP, device STRING, site STRING, temp DOUBLE, hum DOUBLE, pressure DOUBLE, co2 DOUBLE, lux DOUBLE,
  wind DOUBLE, lat DOUBLE, lon DOUBLE, volt DOUBLE, batt DOUBLE, status STRING, online BOOLEAN, errors INT,
  uptime BIGINT, firmware STRING, price DECIMAL(10,2), raw BINARY,
  WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS
) WITH (source = 'generator', format = 'json', rate = '20000', step = '1ms', seed = '7', cardinality = '40',
        disorder = '0.05', spread = '8s');

CREATE SINK alarms_out WITH (type = 'memory', max_rows = '10000');
CREATE SINK climate_out WITH (type = 'memory', max_rows = '10000');
CREATE SINK volume_out WITH (type = 'memory', max_rows = '10000');

-- A filter: rows as they come.
CREATE PIPELINE alarms INTO alarms_out AS
  SELECT ts, device, temp FROM sensors WHERE temp > 33.5;

-- A windowed aggregate: one row per device and minute, when the watermark has passed the minute.
CREATE PIPELINE climate INTO climate_out AS
  SELECT window.start AS minute, device, count(*) AS readings, avg(temp) AS temp, max(hum) AS hum
  FROM sensors GROUP BY window(ts, '1 minute'), device;

-- A count that needs no column at all, except the event time for its windows.
CREATE PIPELINE volume INTO volume_out AS
  SELECT window.start AS minute, count(*) AS rows FROM sensors GROUP BY window(ts, '1 minute');
