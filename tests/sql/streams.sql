-- The streams and sinks that every plan and error case of this directory may use.
CREATE STREAM s (
    id INT, temp DOUBLE, hum FLOAT, k STRING, ok BOOLEAN, n BIGINT, price DECIMAL(10,2), day DATE,
    pos STRUCT<lat: DOUBLE, lon: DOUBLE>, tags ARRAY<STRING>, attrs MAP<STRING, STRING>, raw BINARY,
    at TIMESTAMP_NTZ, ts TIMESTAMP,
    WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS
) WITH (source = 'generator', format = 'json');
CREATE STREAM plain (a INT, b INT, c STRING) WITH (source = 'generator', format = 'json');
CREATE STREAM local (v DOUBLE, w SMALLINT, t TIMESTAMP_NTZ, WATERMARK FOR t AS t)
WITH (source = 'generator', format = 'json');
CREATE SINK out WITH (type = 'memory');
CREATE SINK other WITH (type = 'memory');
