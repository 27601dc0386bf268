-- error: BAD_COMPUTED_COLUMN
-- at: 1:40
CREATE STREAM x (a INT, b TIMESTAMP AS now()) WITH (source = 'generator', format = 'json')
