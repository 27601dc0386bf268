-- error: BAD_WATERMARK
-- at: 1:39
CREATE STREAM x (a INT, WATERMARK FOR a AS a) WITH (source = 'generator', format = 'json')
