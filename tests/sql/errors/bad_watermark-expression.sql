-- error: BAD_WATERMARK
-- at: 1:50
CREATE STREAM x (t TIMESTAMP, WATERMARK FOR t AS now()) WITH (source = 'generator', format = 'json')
