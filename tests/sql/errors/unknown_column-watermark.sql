-- error: UNKNOWN_COLUMN
-- at: 1:39
CREATE STREAM x (a INT, WATERMARK FOR b AS b) WITH (source = 'generator', format = 'json')
